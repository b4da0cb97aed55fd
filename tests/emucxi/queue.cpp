// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/queue.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/emucxi/domain.hpp"
#include "tests/emucxi/endpoint.hpp"
#include "tests/emucxi/object.hpp"

namespace emucxi {
namespace {

Queue& queue_of(fid_cq* handle) { return *static_cast<Queue*>(handle); }

std::size_t entry_bytes(fi_cq_format format) {
  switch (format) {
    case FI_CQ_FORMAT_MSG: return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA: return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED: return sizeof(fi_cq_tagged_entry);
    default: return sizeof(fi_cq_entry);
  }
}

std::uint64_t kind_flags(const Transfer& transfer) {
  const bool reads = transfer.kind == FI_OP_READ || transfer.fetched.addr;
  return (transfer.atomic() ? FI_ATOMIC : FI_RMA) | (reads ? FI_READ : FI_WRITE);
}

// --- libfabric's calls -----------------------------------------------------------------------------------------------

ssize_t read(fid_cq* handle, void* buffer, std::size_t count) {
  Queue& queue = queue_of(handle);
  const std::size_t bytes = entry_bytes(queue.format());
  return queue.domain().locked([&]() -> ssize_t {
    queue.progress();
    if (!queue.front()) return -FI_EAGAIN;
    std::size_t done = 0;
    // An entry of any format is the beginning of an error entry.
    for (; done < count && queue.front() && !queue.front()->err; ++done, queue.pop()) {
      std::memcpy(static_cast<std::byte*>(buffer) + done * bytes, queue.front(), bytes);
    }
    const bool failed = done == 0 && queue.front()->err;
    queue.settle();
    return failed ? -FI_EAVAIL : static_cast<ssize_t>(done);
  });
}

ssize_t readfrom(fid_cq* handle, void* buffer, std::size_t count, fi_addr_t* sources) {
  const ssize_t done = read(handle, buffer, count);
  if (done > 0 && sources) std::fill_n(sources, done, FI_ADDR_NOTAVAIL);
  return done;
}

ssize_t readerr(fid_cq* handle, fi_cq_err_entry* entry, std::uint64_t) {
  Queue& queue = queue_of(handle);
  return queue.domain().locked([&]() -> ssize_t {
    queue.progress();
    if (!queue.front() || !queue.front()->err) return -FI_EAGAIN;
    *entry = *queue.front();
    queue.pop();
    queue.settle();
    return 1;
  });
}

ssize_t sread(fid_cq* handle, void* buffer, std::size_t count, const void*, int timeout) {
  const Queue& queue = queue_of(handle);
  if (queue.descriptor() < 0) return -FI_ENOSYS;
  pollfd waited = {queue.descriptor(), POLLIN, 0};
  const ssize_t done = read(handle, buffer, count);
  if (done != -FI_EAGAIN) return done;
  if (::poll(&waited, 1, timeout) < 0) return -errno;
  return read(handle, buffer, count);
}

const char* strerror(fid_cq*, int error, const void*, char*, std::size_t) { return fi_strerror(error); }

int control(fid* handle, int command, void* argument) {
  const auto& queue = object<Queue>(handle);
  if (command != FI_GETWAIT || queue.descriptor() < 0) return -FI_ENOSYS;
  *static_cast<int*>(argument) = queue.descriptor();
  return 0;
}

int close(fid* handle) {
  auto& queue = object<Queue>(handle);
  Domain& domain = queue.domain();
  return domain.locked([&] {
    if (!queue.endpoints.empty()) return -FI_EBUSY;
    delete &queue;
    --domain.others;
    return 0;
  });
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = close,
                  .bind = kAbsent,
                  .control = control,
                  .ops_open = kAbsent,
                  .tostr = kAbsent,
                  .ops_set = kAbsent};
fi_ops_cq cq_ops = {.size = sizeof(fi_ops_cq),
                    .read = read,
                    .readfrom = readfrom,
                    .readerr = readerr,
                    .sread = sread,
                    .sreadfrom = kAbsent,
                    .signal = kAbsent,
                    .strerror = strerror};

/// -1: none wanted; a negative error otherwise.
int wait_descriptor(fi_wait_obj wanted) {
  if (wanted == FI_WAIT_NONE) return -1;
  if (wanted != FI_WAIT_UNSPEC && wanted != FI_WAIT_FD) return -FI_ENOSYS;
  const int descriptor = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return descriptor >= 0 ? descriptor : -FI_EMFILE;
}

}  // namespace

Queue::Queue(Domain& domain, const fi_cq_attr& attributes, int descriptor, void* context)
    : fid_cq{{FI_CLASS_CQ, context, &fid_ops}, &cq_ops}, domain_(domain),
      format_(attributes.format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attributes.format),
      descriptor_(descriptor) {}

Queue::~Queue() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Queue::finished(std::unique_ptr<Transfer> transfer, int error) {
  finished_.push_back({std::move(transfer), error});
  if (descriptor_ >= 0) ::eventfd_write(descriptor_, 1);
}

void Queue::progress() {
  for (const auto& [transfer, error] : finished_) {
    if (transfer->holds_request) transfer->endpoint->give_back_request();
    if (!error && !(transfer->flags & FI_COMPLETION)) continue;
    fi_cq_err_entry entry{};
    entry.op_context = transfer->context;
    entry.flags = kind_flags(*transfer);
    entry.err = error;
    entry.prov_errno = error;
    entries_.push_back(entry);
  }
  finished_.clear();
}

void Queue::settle() const {
  eventfd_t ignored = 0;
  if (descriptor_ >= 0 && quiet()) ::eventfd_read(descriptor_, &ignored);
}

void Queue::forget(const Endpoint& endpoint) {
  std::erase_if(finished_, [&](const Finished& one) { return one.transfer->endpoint == &endpoint; });
  std::erase(endpoints, &endpoint);
}

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  const fi_cq_attr wanted = attributes ? *attributes : fi_cq_attr{};
  const int descriptor = wait_descriptor(wanted.wait_obj);
  if (descriptor < -1) return descriptor;
  auto& owner = *static_cast<Domain*>(domain);
  *queue = new Queue(owner, wanted, descriptor, context);
  return owner.locked([&] {
    ++owner.others;
    return 0;
  });
}

int try_wait(fid_fabric*, fid** handles, int count) {
  for (fid* const handle : std::vector<fid*>(handles, handles + count)) {
    if (handle->fclass != FI_CLASS_CQ) return -FI_ENOSYS;
    const auto& queue = object<Queue>(handle);
    if (!queue.domain().locked([&] { return queue.quiet(); })) return -FI_EAGAIN;
  }
  return 0;
}

}  // namespace emucxi
