// SPDX-License-Identifier: Apache-2.0
#include "tests/layer/queue.hpp"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/layer/tables.hpp"

namespace layer {
namespace {

std::size_t entry_bytes(fi_cq_format format) {
  switch (format) {
    case FI_CQ_FORMAT_MSG: return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA: return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED: return sizeof(fi_cq_tagged_entry);
    default: return sizeof(fi_cq_entry);
  }
}

// --- libfabric's calls -----------------------------------------------------------------------------------------------

ssize_t read(fid_cq* handle, void* buffer, std::size_t count) {
  return locked<Queue>(&handle->fid, [&](Queue& queue) { return queue.read(buffer, count); });
}

ssize_t readfrom(fid_cq* handle, void* buffer, std::size_t count, fi_addr_t* sources) {
  const ssize_t done = read(handle, buffer, count);
  if (done > 0 && sources) std::fill_n(sources, done, FI_ADDR_NOTAVAIL);
  return done;
}

ssize_t readerr(fid_cq* handle, fi_cq_err_entry* entry, std::uint64_t) {
  return locked<Queue>(&handle->fid, [&](Queue& queue) { return queue.read_error(*entry); });
}

ssize_t sread(fid_cq* handle, void* buffer, std::size_t count, const void*, int timeout) {
  const auto& queue = object<Queue>(&handle->fid);
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

fi_ops fid_ops = calls<fi_ops>([](fi_ops& has) {
  has.close = close_part<Queue>;
  has.control = control;
});
fi_ops_cq cq_ops = calls<fi_ops_cq>([](fi_ops_cq& has) {
  has.read = read;
  has.readfrom = readfrom;
  has.readerr = readerr;
  has.sread = sread;
  has.strerror = strerror;
});

}  // namespace

Queue::Queue(Domain& owner, const fi_cq_attr& attributes, int descriptor, void* context)
    : Part({{FI_CLASS_CQ, context, &fid_ops}, &cq_ops}, owner),
      format_(attributes.format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attributes.format),
      descriptor_(descriptor) {}

Queue::~Queue() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ssize_t Queue::read(void* buffer, std::size_t count) {
  const std::size_t bytes = entry_bytes(format_);
  progress();
  if (overrun_) return -FI_EOVERRUN;
  if (entries_.empty()) return -FI_EAGAIN;
  std::size_t done = 0;
  // An entry of any format is the beginning of an error entry.
  for (; done < count && !entries_.empty() && !entries_.front().err; ++done, entries_.pop_front()) {
    std::memcpy(static_cast<std::byte*>(buffer) + done * bytes, &entries_.front(), bytes);
  }
  settle();
  return done == 0 && !entries_.empty() ? -FI_EAVAIL : static_cast<ssize_t>(done);
}

ssize_t Queue::read_error(fi_cq_err_entry& entry) {
  progress();
  if (entries_.empty() || !entries_.front().err) return -FI_EAGAIN;
  entry = entries_.front();
  entries_.pop_front();
  settle();
  return 1;
}

void Queue::announce() const {
  if (descriptor_ >= 0) ::eventfd_write(descriptor_, 1);
}

void Queue::settle() const {
  eventfd_t ignored = 0;
  if (descriptor_ >= 0 && quiet()) ::eventfd_read(descriptor_, &ignored);
}

int wait_descriptor(fi_wait_obj wanted) {
  if (wanted == FI_WAIT_NONE) return -1;
  if (wanted != FI_WAIT_UNSPEC && wanted != FI_WAIT_FD) return -FI_ENOSYS;
  const int descriptor = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return descriptor >= 0 ? descriptor : -FI_EMFILE;
}

int try_wait(fid_fabric*, fid** handles, int count) {
  for (fid* const handle : std::vector<fid*>(handles, handles + count)) {
    if (handle->fclass != FI_CLASS_CQ) return -FI_ENOSYS;
    if (!locked<Queue>(handle, [](const Queue& queue) { return queue.quiet(); })) return -FI_EAGAIN;
  }
  return 0;
}

}  // namespace layer
