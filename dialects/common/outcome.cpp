// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/outcome.hpp"

#include <sluice/error.hpp>

#include <exception>
#include <new>

#include "rma/mpi/log.hpp"

namespace sluice::stream_mpi {
namespace {

int code_of(Code code) {
  switch (code) {
    case Code::timeout: return kNotReady;
    case Code::unsupported: return kUnsupported;
    case Code::mismatch: return MPI_ERR_TRUNCATE;
    case Code::out_of_resources: return MPI_ERR_NO_MEM;
    case Code::bad_argument: return MPI_ERR_ARG;
    case Code::misuse:
    case Code::peer_lost:
    case Code::transport:
    case Code::aborted:
    case Code::closed: break;
  }
  return MPI_ERR_OTHER;
}

}  // namespace

int report(const char* where) noexcept {
  int code = MPI_ERR_OTHER;
  std::string why;
  try {
    throw;
  } catch (const Refused& refused) {
    code = refused.error_class();
    why = refused.what();
  } catch (const Error& error) {
    code = code_of(error.code());
    why = error.what();
  } catch (const std::bad_alloc&) {
    return MPI_ERR_NO_MEM;
  } catch (const std::exception& reason) {
    why = reason.what();
  }
  mpi_rma::log(mpi_rma::Level::error, std::string(where) + ": " + why);
  return code;
}

// Without an error no instruction is locked: it would keep the processor from looking at several words at once.
void Faults::note(int code) noexcept {
  if (code == 0) return;
  int none = 0;
  code_.compare_exchange_strong(none, code == kNotReady ? MPI_ERR_OTHER : code);
}

int Faults::take() noexcept { return code_.load(std::memory_order_acquire) == 0 ? 0 : code_.exchange(0); }

}  // namespace sluice::stream_mpi
