// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <memory>
#include <string>
#include <vector>

namespace apps {

/// How many messages of a pair may be in flight: epoch k uses slot k mod kSlots, so a step need not wait for the
/// message of the last step.
inline constexpr int kSlots = 2;

/// One end of a message that is sent again and again: kSlots slots, contiguous in memory.
struct Link {
  int peer = 0;
  sluice::Slice slots;
  std::string contents = {};  ///< describes the contents of a slot: the same text at both ends

  std::size_t bytes() const { return slots.bytes() / kSlots; }
  std::byte* slot(int number) const { return slots.data() + static_cast<std::size_t>(number) * bytes(); }
};

/// The messages that a rank sends and receives in an exchange: at most one for each pair and direction.
struct Links {
  std::vector<Link> out = {};
  std::vector<Link> in = {};
  std::string name = "halo";  ///< exchanges that are open at the same time have different names
};

/// Moves the messages of a halo, again and again. One exchange is acquire, (pack), put, ..., wait, (unpack), release.
///
/// With channels each of these is enqueued on a stream and returns at once; the others run in program order.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Waits until the out-slots of the next exchange may be packed. Returns the number of those slots; it is the number
  /// of the in-slots too.
  virtual int acquire() = 0;
  virtual void put() = 0;
  virtual void wait() = 0;
  virtual void release() = 0;

  /// Name of the transport, for people.
  virtual std::string describe() const = 0;
};

/// Through Sluice: one plan of all senders and receivers, on `stream`.
std::unique_ptr<Exchange> make_sluice_exchange(sluice::Context& context, const Links& links, sluice::Stream stream);

enum class MpiRequests {
  each_time,  ///< MPI_Irecv and MPI_Isend in every exchange
  persistent  ///< made once, receives started as early as their slots are free
};

/// Through MPI, in program order.
/// @throws UsageError if the program was not started under MPI, or built without it.
std::unique_ptr<Exchange> make_mpi_exchange(const Links& links, MpiRequests requests);

/// Moves nothing: a run then measures the time of packing, unpacking and computing alone.
std::unique_ptr<Exchange> make_no_exchange();

}  // namespace apps
