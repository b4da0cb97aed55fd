// SPDX-License-Identifier: Apache-2.0
#include "dialects/messages/make.hpp"

#include <utility>

#include "dialects/common/outcome.hpp"
#include "dialects/messages/codes.hpp"
#include "dialects/messages/lane.hpp"

namespace sluice::stream_mpi {

std::shared_ptr<Transfer> make_transfer(const Arguments& arguments, Direction direction) {
  (void)Job::current();
  if (arguments.comm == MPI_COMM_NULL) throw Refused(MPI_ERR_COMM, "a null communicator");
  if (arguments.count < 0) throw Refused(MPI_ERR_COUNT, "a negative count");
  if (arguments.type == MPI_DATATYPE_NULL) throw Refused(MPI_ERR_TYPE, "a null datatype");
  if (arguments.peer == MPI_ANY_SOURCE || arguments.tag == MPI_ANY_TAG)
    throw Refused(kUnsupported, "MPI_ANY_SOURCE or MPI_ANY_TAG");
  if (arguments.peer == MPI_PROC_NULL)
    return std::make_shared<Transfer>(nullptr, Layout(), arguments.peer, arguments.tag);
  Layout layout(arguments.buffer, arguments.count, arguments.type);
  return std::make_shared<Transfer>(lane_of({arguments.comm, arguments.peer, arguments.tag}, direction),
                                    std::move(layout), arguments.peer, arguments.tag);
}

int class_of(const std::exception_ptr& failure) noexcept {
  if (failure == nullptr) return MPI_SUCCESS;
  try {
    std::rethrow_exception(failure);
  } catch (const Refused& refused) {
    return mpi_code(refused.error_class());
  } catch (...) {
    return MPI_ERR_OTHER;
  }
}

}  // namespace sluice::stream_mpi
