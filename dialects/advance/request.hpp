// SPDX-License-Identifier: Apache-2.0
// Requests of MPI Advance's.
#pragma once

#include "dialects/common/job.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/common/pairing.hpp"

#include <sluice/dialects/mpis.h>

#include <cstdint>
#include <exception>
#include <memory>

namespace sluice::advance {

class Queue;

/// A send, a receive or a collective: unmatched, then being matched, then matched, then started again and again.
class Request {
 public:
  enum class Kind : std::uint8_t { send, receive, collective };

  Request(std::shared_ptr<stream_mpi::Job> job, const stream_mpi::Envelope& envelope, Kind kind,
          stream_mpi::Layout layout);
  /// A collective, which is being named.
  explicit Request(std::unique_ptr<stream_mpi::Pairing> naming);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  /// Blocks until no peer uses the buffer, unless a stream still uses it: its last item then ends it.
  ~Request();

  Kind kind() const noexcept { return kind_; }

  /// @throws Refused if the program may not match it, or not on this queue
  void check_match(const Queue& queue) const;
  /// Begins the match, unless it has begun.
  void match_on(const Queue& queue);
  /// Another match is no error: the call for this one has failed, perhaps by another request.
  void permit_next_match(bool permitted) noexcept { next_match_permitted_ = permitted; }
  /// Goes on with the match without blocking. True: it is matched. @throws what the match has failed of
  bool advance();
  /// True between the program's call for a match and its completion.
  bool matching() const noexcept { return state_ == State::matching; }
  bool matched() const noexcept { return state_ == State::matched; }
  /// Writes the status of a matched one.
  void describe(MPI_Status* status) const;

  /// @throws Refused if it cannot be started there
  void check_start(const Queue& queue) const;
  void start(Queue& queue) noexcept { started_on_ = &queue; }
  /// It was waited for, its queue ends, or it is not started after all.
  void not_started() noexcept { started_on_ = nullptr; }
  /// Null unless it is started.
  Queue* started_on() const noexcept { return started_on_; }
  /// Null before the match.
  const std::shared_ptr<stream_mpi::Operation>& operation() const noexcept { return operation_; }

  /// Goes on with all matches that have begun, since a peer may wait for one of them while this rank waits for another.
  /// So it begins those of each send and receive that is the only unmatched one with its peer, tag and communicator.
  /// Null `queue`: it begins none, since it is not known on which kind of queue the program will match them.
  static void help_peers(const Queue* queue);
  /// Ends those that the program has not freed: they can only be freed. For MPI_Finalize.
  static void end_all();

 private:
  enum class State : std::uint8_t { unmatched, matching, matched };

  bool to_nobody() const noexcept { return kind_ != Kind::collective && envelope_.peer == MPI_PROC_NULL; }
  void begin(const Queue& queue);
  bool pair();
  void end(const char* where);

  std::shared_ptr<stream_mpi::Job> job_;
  stream_mpi::Envelope envelope_;
  Kind kind_;
  State state_ = State::unmatched;
  bool begun_ = false;  ///< the match; perhaps before the program's call for it
  bool next_match_permitted_ = false;
  bool on_gpu_ = false;
  Queue* started_on_ = nullptr;
  stream_mpi::Layout layout_;
  std::unique_ptr<stream_mpi::Pairing> pairing_;
  std::exception_ptr failure_;
  std::shared_ptr<stream_mpi::Operation> operation_;
  std::size_t bytes_ = 0;
};

}  // namespace sluice::advance

/// The handle of a request, or of a match of one.
struct MPIS_Request_struct {
  std::shared_ptr<sluice::advance::Request> request;
  bool of_match = false;
};
