// SPDX-License-Identifier: Apache-2.0
// Streams.
#include "c/handles.hpp"

#include <memory>
#include <mutex>
#include <set>

namespace sluice {
namespace c {

const void* this_copy() noexcept {
  static constexpr char kOne = 0;
  return &kOne;
}

namespace {

HostStream& own(sluice_host_stream* stream) {
  HostStream& found = at(stream);
  if (stream->maker != this_copy())
    refuse(Code::misuse, "a host stream of another copy of Sluice in this process: a program links one of them");
  return found;
}

/// Never destroyed: threads may free streams while the program ends.
struct Streams {
  std::mutex mutex;
  std::set<const void*> all;
};

Streams& streams() {
  static Streams& made = *new Streams;
  return made;
}

}  // namespace

bool is_host_stream(const void* handle) {
  const std::lock_guard lock(streams().mutex);
  return streams().all.contains(handle);
}

}  // namespace c

Stream stream_of(sluice_stream stream) {
  using namespace c;
  static_assert(static_cast<int>(Stream::Kind::host) == SLUICE_STREAM_HOST);
  static_assert(static_cast<int>(Stream::Kind::cuda) == SLUICE_STREAM_CUDA);
  static_assert(static_cast<int>(Stream::Kind::hip) == SLUICE_STREAM_HIP);
  switch (value_of(stream.kind, Stream::Kind::hip, "kind of stream")) {
    case Stream::Kind::host: return Stream::host(own(static_cast<sluice_host_stream*>(stream.handle)));
    case Stream::Kind::cuda: return Stream::cuda(static_cast<CUstream_st*>(stream.handle));
    case Stream::Kind::hip: return Stream::hip(static_cast<ihipStream_t*>(stream.handle));
    case Stream::Kind::program_order: break;
  }
  return Stream::program_order();
}

}  // namespace sluice

using namespace sluice::c;

sluice_stream sluice_stream_program_order() { return {SLUICE_STREAM_PROGRAM_ORDER, nullptr}; }

sluice_stream sluice_stream_host(sluice_host_stream* stream) { return {SLUICE_STREAM_HOST, stream}; }

sluice_stream sluice_stream_cuda(void* stream) { return {SLUICE_STREAM_CUDA, stream}; }

sluice_stream sluice_stream_hip(void* stream) { return {SLUICE_STREAM_HIP, stream}; }

sluice_code sluice_host_stream_create(const sluice_host_stream_options* options, sluice_host_stream** stream) {
  return guarded([&] {
    sluice_host_stream*& place = result(stream);
    const auto read = options_of<sluice_host_stream_options>(options, SLUICE_HOST_STREAM_OPTIONS);
    sluice::HostStream made({.capacity = read.capacity,
                             .cpu = read.cpu,
                             .timeout = limit_of(read.timeout),
                             .stop_after_failure = read.stop_after_failure != 0,
                             .name = text_of(read.name)});
    auto handle = std::make_unique<sluice_host_stream>(sluice_host_stream{std::move(made), this_copy()});
    const std::lock_guard lock(streams().mutex);
    streams().all.insert(handle.get());
    place = handle.release();
  });
}

sluice_code sluice_host_stream_run(sluice_host_stream* stream, int (*work)(void*), void* argument) {
  return guarded([&] {
    if (work == nullptr) refuse(sluice::Code::bad_argument, "the callable is NULL");
    at(stream).run([work, argument] {
      forget_last_error();
      throw_unless_zero(work(argument), "a callable on a host stream");
    });
  });
}

sluice_code sluice_host_stream_synchronize(sluice_host_stream* stream, sluice_timeout timeout) {
  return guarded([&] { at(stream).synchronize(limit_of(timeout)); });
}

int sluice_host_stream_failed(const sluice_host_stream* stream) {
  return stream != nullptr && stream->stream.failed() ? 1 : 0;
}

sluice_code sluice_host_stream_free(sluice_host_stream** stream) {
  if (stream != nullptr) {
    const std::lock_guard lock(streams().mutex);
    streams().all.erase(*stream);
  }
  return destroy(stream);
}
