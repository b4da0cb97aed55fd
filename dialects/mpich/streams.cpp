// SPDX-License-Identifier: Apache-2.0
#include "dialects/mpich/streams.hpp"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "dialects/messages/at_end.hpp"
#include "dialects/messages/codes.hpp"

namespace sluice::mpich {
namespace {

using stream_mpi::Refused;

struct Streams {
  std::mutex mutex;
  std::map<MPIX_Stream, std::shared_ptr<StreamObject>> all;
  std::vector<std::weak_ptr<StreamObject>> made;  // those of communicators outlive their handles
  MPIX_Stream last = MPIX_STREAM_NULL;
};

Streams& streams() {
  static Streams& made = *new Streams;
  return made;
}

void end_streams() {
  std::vector<std::weak_ptr<StreamObject>> ending;
  std::map<MPIX_Stream, std::shared_ptr<StreamObject>> not_freed;  // they end here
  {
    const std::lock_guard lock(streams().mutex);
    ending = std::exchange(streams().made, {});
    not_freed = std::exchange(streams().all, {});
  }
  for (const auto& weak : ending)
    if (const auto stream = weak.lock(); stream != nullptr && stream->line != nullptr) (void)stream->line->wait();
}

/// The attribute of a communicator.
using Held = std::shared_ptr<StreamObject>;

extern "C" {

int sluice_mpich_copy_stream(MPI_Comm, int, void*, void* value, void* copy, int* flag) {
  *static_cast<void**>(copy) = new Held(*static_cast<Held*>(value));
  *flag = 1;
  return MPI_SUCCESS;
}

int sluice_mpich_drop_stream(MPI_Comm, int, void* value, void*) {
  delete static_cast<Held*>(value);
  return MPI_SUCCESS;
}

}  // extern "C"

int stream_key() {
  static const int made = [] {
    int key = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(&sluice_mpich_copy_stream, &sluice_mpich_drop_stream, &key, nullptr);
    return key;
  }();
  return made;
}

}  // namespace

MPIX_Stream add_stream(std::shared_ptr<StreamObject> stream) {
  static const bool ended_at_end = (stream_mpi::at_end(stream_mpi::Phase::streams, end_streams), true);
  static_cast<void>(ended_at_end);
  const std::lock_guard lock(streams().mutex);
  std::erase_if(streams().made, [](const auto& weak) { return weak.expired(); });
  streams().made.push_back(stream);
  stream->handle = ++streams().last;
  const MPIX_Stream handle = stream->handle;
  streams().all.emplace(handle, std::move(stream));
  return handle;
}

std::shared_ptr<StreamObject> find_stream(MPIX_Stream handle) {
  if (handle == MPIX_STREAM_NULL) return nullptr;
  const std::lock_guard lock(streams().mutex);
  const auto found = streams().all.find(handle);
  if (found == streams().all.end()) throw Refused(MPI_ERR_ARG, "there is no such stream");
  return found->second;
}

std::shared_ptr<StreamObject> take_stream(MPIX_Stream handle) {
  std::shared_ptr<StreamObject> stream = find_stream(handle);
  if (stream == nullptr) throw Refused(MPI_ERR_ARG, "MPIX_STREAM_NULL cannot be freed");
  const std::lock_guard lock(streams().mutex);
  streams().all.erase(handle);
  return stream;
}

bool is_alive(MPIX_Stream handle) {
  const std::lock_guard lock(streams().mutex);
  return streams().all.contains(handle);
}

void attach(MPI_Comm comm, std::shared_ptr<StreamObject> stream) {
  auto held = std::make_unique<Held>(std::move(stream));
  if (PMPI_Comm_set_attr(comm, stream_key(), held.get()) != MPI_SUCCESS)
    throw Refused(MPI_ERR_OTHER, "MPI does not keep the stream of a communicator");
  static_cast<void>(held.release());  // the attribute's function deletes it
}

std::shared_ptr<StreamObject> stream_of(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) throw Refused(MPI_ERR_COMM, "a null communicator");
  void* value = nullptr;
  int found = 0;
  PMPI_Comm_get_attr(comm, stream_key(), static_cast<void*>(&value), &found);
  return found == 0 ? nullptr : *static_cast<Held*>(value);
}

std::shared_ptr<StreamObject> enqueuing(MPI_Comm comm) {
  std::shared_ptr<StreamObject> stream = stream_of(comm);
  if (stream == nullptr || stream->line == nullptr)
    throw Refused(MPI_ERR_COMM, "a communicator without a stream: MPIX_Stream_comm_create makes one");
  return stream;
}

}  // namespace sluice::mpich
