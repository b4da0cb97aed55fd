// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/halo.hpp"
#include "apps/common/halo_buffers.hpp"

#include <sluice/sluice.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace apps {

/// Moves the messages of a halo, again and again. One exchange is acquire, (pack), put, ..., wait, (unpack), release.
///
/// With channels each of these is enqueued on a stream and returns at once; the others run in program order.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Makes the out-slots of the next exchange free to pack into. Returns which of the slots those are; the same for the
  /// in-slots.
  virtual int acquire() = 0;
  virtual void put() = 0;
  virtual void wait() = 0;
  virtual void release() = 0;

  /// What moves the bytes, for people.
  virtual std::string describe() const = 0;
};

/// Through Sluice: one plan of a sender and a receiver per message, on `stream`.
std::unique_ptr<Exchange> make_sluice_exchange(sluice::Context& context, const Halo& halo, const HaloBuffers& buffers,
                                               sluice::Stream stream);

/// Through MPI: persistent requests, receives posted as early as their slots are free. In program order.
/// @throws UsageError where the program was not started under MPI, or built without it.
std::unique_ptr<Exchange> make_mpi_exchange(const Halo& halo, const HaloBuffers& buffers, std::size_t cell_bytes);

/// Moves nothing: what is left is the time of packing, unpacking and computing.
std::unique_ptr<Exchange> make_no_exchange();

}  // namespace apps
