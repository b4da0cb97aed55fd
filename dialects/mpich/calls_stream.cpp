// SPDX-License-Identifier: Apache-2.0
// MPICH's functions: streams, and communicators with a stream.
#include <sluice/dialects/mpich.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "c/handles.hpp"
#include "dialects/common/info.hpp"
#include "dialects/common/job.hpp"
#include "dialects/messages/codes.hpp"
#include "dialects/messages/communicators.hpp"
#include "dialects/messages/gpu_line.hpp"
#include "dialects/messages/lane.hpp"
#include "dialects/messages/on_line.hpp"
#include "dialects/mpich/hex.hpp"
#include "dialects/mpich/next.hpp"
#include "dialects/mpich/streams.hpp"

namespace sluice::mpich {
namespace {

using stream_mpi::argument;
using stream_mpi::Refused;
using stream_mpi::returning;
using stream_mpi::value_of;

constexpr std::string_view kHostStream = "sluice_host_stream*";
constexpr std::string_view kCudaStream = "cudaStream_t";
constexpr std::string_view kHipStream = "hipStream_t";

Stream gpu_stream(std::string_view type, void* handle) {
  return type == kHipStream ? Stream::hip(static_cast<ihipStream_t*>(handle))
                            : Stream::cuda(static_cast<CUstream_st*>(handle));
}

std::shared_ptr<StreamObject> make_stream(MPI_Info info) {
  auto made = std::make_shared<StreamObject>();
  const auto type = value_of(info, "type");
  if (!type) return made;
  if (*type != kHostStream && *type != kCudaStream && *type != kHipStream)
    throw Refused(stream_mpi::kUnsupported,
                  "a stream of the type '" + *type + "': it must be sluice_host_stream*, cudaStream_t or hipStream_t");
  if (!from_hex(value_of(info, "value").value_or(""), std::as_writable_bytes(std::span(&made->stream, 1))))
    throw Refused(MPI_ERR_INFO_VALUE, "the info's \"value\" is not that of MPIX_Info_set_hex with a " + *type);
  if (*type == kHostStream && !c::is_host_stream(made->stream))
    throw Refused(stream_mpi::kUnsupported, "the info's \"value\" is no sluice_host_stream* of this library");
  if (*type == kHostStream)
    made->line = stream_mpi::make_message_line(&made->stream);
  else
    made->line = stream_mpi::make_gpu_line(stream_mpi::Job::current()->context, gpu_stream(*type, made->stream));
  return made;
}

/// @throws Refused{MPI_ERR_ARG} for a stream that does not exist. MPIX_STREAM_NULL stands for MPI's own progress.
void expect_stream(MPIX_Stream stream) { (void)find_stream(stream); }

bool is_for_mpi(MPI_Info info) {
  const auto type = value_of(info, "type");
  return !type || *type != kHostStream;
}

}  // namespace
}  // namespace sluice::mpich

using namespace sluice::mpich;

int MPIX_Info_set_hex(MPI_Info info, const char* key, const void* value, int value_size) {
  int code = MPI_SUCCESS;
  const int refused = returning("MPIX_Info_set_hex", [&] {
    (void)argument(key, "the key");
    const auto* const bytes = &argument(static_cast<const std::byte*>(value), "the value");
    if (value_size < 0) throw Refused(MPI_ERR_ARG, "a negative size");
    const std::string text = to_hex({bytes, static_cast<std::size_t>(value_size)});
    code = PMPI_Info_set(info, key, text.c_str());
  });
  return refused == MPI_SUCCESS ? code : refused;
}

int MPIX_Stream_create(MPI_Info info, MPIX_Stream* stream) {
  if (is_for_mpi(info)) SLUICE_LEAVE_TO_MPI(MPIX_Stream_create, info, stream);
  return returning("MPIX_Stream_create", [&] {
    MPIX_Stream& result = argument(stream, "the stream");
    result = add_stream(make_stream(info));
  });
}

int MPIX_Stream_free(MPIX_Stream* stream) {
  if (stream != nullptr && !is_alive(*stream)) SLUICE_LEAVE_TO_MPI(MPIX_Stream_free, stream);
  int met = MPI_SUCCESS;
  const int code = returning("MPIX_Stream_free", [&] {
    MPIX_Stream& handle = argument(stream, "the stream");
    const auto taken = take_stream(handle);
    handle = MPIX_STREAM_NULL;
    if (taken->line != nullptr) met = sluice::stream_mpi::mpi_code(taken->line->wait());
  });
  return code == MPI_SUCCESS ? met : code;
}

int MPIX_Stream_comm_create(MPI_Comm comm, MPIX_Stream stream, MPI_Comm* newcomm) {
  int code = MPI_SUCCESS;
  const int refused = returning("MPIX_Stream_comm_create", [&] {
    MPI_Comm& result = argument(newcomm, "the communicator");
    if (comm == MPI_COMM_NULL) throw Refused(MPI_ERR_COMM, "a null communicator");
    auto* const of_mpi = SLUICE_OF_MPI(MPIX_Stream_comm_create);
    const bool own = is_alive(stream);
    const auto object = of_mpi == nullptr || own ? find_stream(stream) : nullptr;
    MPI_Comm made = MPI_COMM_NULL;
    // Other ranks may have a stream of MPI's.
    code = of_mpi == nullptr ? PMPI_Comm_dup(comm, &made) : of_mpi(comm, own ? MPIX_STREAM_NULL : stream, &made);
    if (code != MPI_SUCCESS) return;
    sluice::stream_mpi::number_communicator(made);
    attach(made, object);
    result = made;
  });
  return refused == MPI_SUCCESS ? code : refused;
}

int MPIX_Comm_get_stream(MPI_Comm comm, int idx, MPIX_Stream* stream) {
  if (comm != MPI_COMM_NULL && stream_of(comm) == nullptr) SLUICE_LEAVE_TO_MPI(MPIX_Comm_get_stream, comm, idx, stream);
  return returning("MPIX_Comm_get_stream", [&] {
    MPIX_Stream& result = argument(stream, "the stream");
    if (idx != 0) throw Refused(MPI_ERR_ARG, "an index other than 0");
    const auto object = stream_of(comm);
    result = object != nullptr && is_alive(object->handle) ? object->handle : MPIX_STREAM_NULL;
  });
}

int MPIX_Start_progress_thread(MPIX_Stream stream) {
  if (!is_alive(stream)) SLUICE_LEAVE_TO_MPI(MPIX_Start_progress_thread, stream);
  return returning("MPIX_Start_progress_thread", [&] { expect_stream(stream); });
}

int MPIX_Stop_progress_thread(MPIX_Stream stream) {
  if (!is_alive(stream)) SLUICE_LEAVE_TO_MPI(MPIX_Stop_progress_thread, stream);
  return returning("MPIX_Stop_progress_thread", [&] { expect_stream(stream); });
}

int MPIX_Stream_progress(MPIX_Stream stream) {
  if (!is_alive(stream)) SLUICE_LEAVE_TO_MPI(MPIX_Stream_progress, stream);
  return returning("MPIX_Stream_progress", [&] {
    expect_stream(stream);
    sluice::stream_mpi::progress_lanes();
  });
}
