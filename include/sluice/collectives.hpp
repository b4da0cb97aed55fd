// SPDX-License-Identifier: Apache-2.0
// Collective operations: made once, without a blocking call, and started on streams.
#pragma once

#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/ops.hpp>
#include <sluice/stream.hpp>
#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

class Context;

namespace collectives {
class Operation;
}

/// The thread that advances a collective between `start` and `wait`.
enum class Progress : std::uint8_t {
  in_wait,    ///< none: the stream, or the calling thread, does the rest in `wait`; in program order `test` does, too
  own_stream  ///< a HostStream of the collective, so that a rank that computes delays no other
};

/// Options of a collective. All ranks give the same, but for `progress`.
struct CollectiveOptions {
  Progress progress = Progress::in_wait;
  /// The algorithm, by the name that `describe` gives it; empty: Sluice chooses.
  std::string_view algorithm = {};
  /// Numbers are combined one by one in the order of the ranks, ((x0 op x1) op x2) ..., whatever their count, the root,
  /// and where the ranks are. The result then has the bits of a serial program that adds them so. It costs: of
  /// algorithms that keep this order, `shares` sends a message from each rank to each other, and in an allreduce a
  /// second one with the result, and `chain` (of a scan) takes p - 1 steps. Naming another algorithm is an error.
  bool fixed_order = false;
};

/// A function of the program that combines elements, which are of any type that is copied as bytes.
struct Combiner {
  /// Replaces each element x of `in_out` by (element of `in`) op x, for `count` elements; `in` is of lower ranks. The
  /// operation is associative. The two do not overlap. Called by the thread that calls `start`, `wait` or `test`, or by
  /// that of a HostStream. An exception fails the collective, at all ranks, with {Code::aborted} at this one.
  std::function<void(const void* in, void* in_out, std::size_t count)> combine = {};
  std::size_t bytes = 0;  ///< of an element
  /// True: x op y is y op x. Otherwise the elements are combined in the order of the ranks.
  bool commutative = false;
};

/// An operation that all ranks of a context take part in: a barrier, a broadcast, a sum. Made by the functions below,
/// at every rank with the same name; they return at once, before other ranks have called them. Any number may be alive,
/// on one context and on contexts that overlap, if those of one context have different names. Movable, not copyable.
/// A handle that is made without arguments, or was moved from, is empty: all calls throw Error{Code::misuse}.
///
/// Each `start` is followed by one `wait`, or a `test` that returns true, before the next `start`. Between the two
/// other collectives may be started, in an order that may differ from rank to rank. Collectives that are under way at
/// the same time are waited for in the same order at all ranks, or have Progress::own_stream: then that order may
/// differ, too. A rank may be two rounds ahead of others that it needs nothing of, and that it sends no long messages
/// (below); the third `start` then waits for them, on its stream.
///
/// @par Memory
///   The collective keeps its slices. They belong to it from `start` to `wait`, and else to the program. A result may
///   be the same slice as what is read ("in place"), else the two must not overlap. It has memory of its own, for three
///   messages of each peer: those of up to 8 KiB, and all whose bytes are combined, passed on, or exchanged in place.
///   Longer messages of the others land in their place: they are sent in `wait`, once the receiver has started. A rank
///   sends them one after the other, in an exchange in the order of the ranks that follow it. So a receiver that starts
///   late delays all behind it, also those that need nothing of it.
///
/// @par Bits
///   The order in which numbers are combined depends on the number of ranks, on how many numbers there are, on the
///   algorithm and on the root, never on time; with CollectiveOptions::fixed_order on the ranks alone. So all ranks get
///   the same bits, and each run with the same layout does. float16 and bfloat16 are combined as float32, and rounded
///   at the end. A minimum or maximum is a NaN wherever a rank has one, of whichever bits. A GPU gives the same bits as
///   the host, but for those of NaNs.
///
/// @par Errors
///   {Code::misuse}: the handle is empty; `start` before `wait` or the reverse; the collective is closed; a stream of
///   another kind or GPU than before, or that was moved from. Nothing has changed. {Code::unsupported}: a stream of a
///   GPU, with Progress::own_stream or with a Combiner; a stream that captures a graph, for the first start, or where
///   kernels cannot move the messages; memory of a GPU, on other streams; numbers that kernels of the stream's GPU do
///   not reach. Nothing has changed. Else the errors of Sender and Receiver: if a peer is lost, every rank gets
///   {Code::peer_lost}, also those that need nothing of it, since a failure of one channel of a collective fails the
///   others.
///
/// @par Graphs
///   On a GPU's stream `start` and `wait` may be captured into graphs, which may be launched any number of times, mixed
///   with starts outside of graphs. The first start is outside, since it maps memory. From the first capture on, small
///   kernels of Sluice move the messages, as they do for a Plan. Messages land in three places in turn. So a graph has
///   a multiple of three rounds (a start and its wait), and as many have gone by, or a multiple of three more or fewer,
///   when it is launched as when it was captured. After a capture with another number, or with half a round, the next
///   `start` or `wait` throws {Code::misuse}, and the graph must not be launched. A launch at another place in turn
///   fails the collective with {Code::misuse}. A graph uses memory of the collective, and `close` does not wait for
///   launches: all must have completed before it, and none may follow.
///
/// @par Threads
///   One thread at a time.
class SLUICE_EXPORT Collective {
 public:
  Collective() noexcept;
  Collective(Collective&&) noexcept;
  /// Closes the collective that was here, as the destructor does.
  Collective& operator=(Collective&&) noexcept;
  /// Closes the collective, as the destructors of its channels do.
  ~Collective();

  /// On `stream`, what is to be sent is complete from here on, and what is to be received may be written. Does not
  /// block the host in program order or on a HostStream; on a GPU's stream the first one waits for the peers to open
  /// their ends. @throws Error see above
  void start(Stream stream);
  /// Later work on `stream` sees the result, and may change what was sent. In program order that is so when the call
  /// returns. `stream` is the one of `start`, or ordered behind it. @throws Error see above; {Code::timeout} in program
  /// order:
  ///   peers have not opened their ends for the connect timeout; call it again.
  void wait(Stream stream);
  /// In program order, after `start`: goes on as far as possible without blocking. So a rank that computes calls it now
  /// and then, for the others that need what it passes on. True: it is complete, as after `wait`. Then `test` and
  /// `wait` may be called, which return at once, or the next `start`.
  /// @throws Error as `wait`
  bool test();

  /// Blocks the host until the peers that this rank works with have opened their ends.
  /// @throws Error{Code::timeout}: nothing has changed; else a failure
  void wait_connected(std::optional<Timeout> timeout = kContextTimeout);
  /// Blocks the host until no stream and no peer touches the memory of this rank. No peer need close at the same time.
  /// Closing a closed collective does nothing.
  /// @throws Error{Code::timeout}: the memory is still in use, and only `close` may be called again
  void close(std::optional<Timeout> timeout = kContextTimeout);

  /// Text for people: the algorithm and why, the GPU on whose streams it has started, and a line for each channel.
  std::string describe() const;

 private:
  friend class collectives::Operation;
  explicit Collective(std::unique_ptr<collectives::Operation> operation) noexcept;
  std::unique_ptr<collectives::Operation> operation_;
};

/// A block that a rank sends to `peer`, or receives from it. `tag` tells blocks of one pair of ranks apart.
struct Block {
  Rank peer = -1;
  Tag tag = 0;
  Slice slice = {};
};

// All functions throw Error{Code::bad_argument} for slices whose sizes do not fit together, ranks that do not exist, an
// unknown algorithm, and a name that is not 1 to 4000 characters; and what Context::sender throws. Ranks whose sizes or
// roots disagree get {Code::mismatch}, or {Code::timeout} where one of them has nothing to send.

/// No rank passes `wait` before all have passed `start`.
SLUICE_EXPORT Collective barrier(Context& context, std::string_view name, CollectiveOptions options = {});
/// The `data` of `root` replaces that of all others.
SLUICE_EXPORT Collective broadcast(Context& context, std::string_view name, const Slice& data, Rank root,
                                   CollectiveOptions options = {});
/// `all` of `root` gets `mine` of each rank, one behind the other. `bytes`: of each rank, at `root`; empty: all alike.
/// `all` and `bytes` count at `root` only. In place there: `mine` is the place in `all`.
SLUICE_EXPORT Collective gather(Context& context, std::string_view name, const Slice& mine, const Slice& all, Rank root,
                                std::span<const std::size_t> bytes = {}, CollectiveOptions options = {});
/// The reverse of `gather`: `mine` of each rank gets its part of `all`.
SLUICE_EXPORT Collective scatter(Context& context, std::string_view name, const Slice& all, const Slice& mine,
                                 Rank root, std::span<const std::size_t> bytes = {}, CollectiveOptions options = {});
/// `all` of each rank gets `mine` of each rank.
SLUICE_EXPORT Collective allgather(Context& context, std::string_view name, const Slice& mine, const Slice& all,
                                   std::span<const std::size_t> bytes = {}, CollectiveOptions options = {});
/// Rank r sends part d of `from` to part r of rank d's `to`; all parts have one size. In place at all ranks, or at
/// none.
SLUICE_EXPORT Collective alltoall(Context& context, std::string_view name, const Slice& from, const Slice& to,
                                  CollectiveOptions options = {});
/// The same with any blocks: of each other rank, and of this one, at most one with each tag. The blocks of a rank to
/// itself are copied. Blocks without bytes are not sent; both ranks must have them so.
///
/// So it is also the exchange with neighbours: a list has the neighbours alone, and where two directions lead to one
/// peer, their tags tell which block lands where.
SLUICE_EXPORT Collective alltoall(Context& context, std::string_view name, std::span<const Block> from,
                                  std::span<const Block> to, CollectiveOptions options = {});
/// `to` of `root` gets the numbers of all ranks, combined one by one. `to` counts at `root` only.
SLUICE_EXPORT Collective reduce(Context& context, std::string_view name, Op op, Number number, const Slice& from,
                                const Slice& to, Rank root, CollectiveOptions options = {});
/// `to` of each rank gets the numbers of all ranks, combined one by one.
SLUICE_EXPORT Collective allreduce(Context& context, std::string_view name, Op op, Number number, const Slice& from,
                                   const Slice& to, CollectiveOptions options = {});
/// `to` of each rank gets its part of the numbers of all ranks, combined one by one. `bytes`: of each part; empty: all
/// alike.
SLUICE_EXPORT Collective reduce_scatter(Context& context, std::string_view name, Op op, Number number,
                                        const Slice& from, const Slice& to, std::span<const std::size_t> bytes = {},
                                        CollectiveOptions options = {});
/// `to` of rank r gets the numbers of ranks 0 to r, combined one by one.
SLUICE_EXPORT Collective scan(Context& context, std::string_view name, Op op, Number number, const Slice& from,
                              const Slice& to, CollectiveOptions options = {});

// Combining by a function of the program, on host streams and in program order. A part has whole elements.

/// `to` of `root` gets the elements of all ranks, combined one by one. `to` counts at `root` only.
SLUICE_EXPORT Collective reduce(Context& context, std::string_view name, Combiner combiner, const Slice& from,
                                const Slice& to, Rank root, CollectiveOptions options = {});
/// `to` of each rank gets the elements of all ranks, combined one by one.
SLUICE_EXPORT Collective allreduce(Context& context, std::string_view name, Combiner combiner, const Slice& from,
                                   const Slice& to, CollectiveOptions options = {});
/// `to` of each rank gets its part of the elements of all ranks, combined one by one.
SLUICE_EXPORT Collective reduce_scatter(Context& context, std::string_view name, Combiner combiner, const Slice& from,
                                        const Slice& to, std::span<const std::size_t> bytes = {},
                                        CollectiveOptions options = {});
/// `to` of rank r gets the elements of ranks 0 to r, combined one by one.
SLUICE_EXPORT Collective scan(Context& context, std::string_view name, Combiner combiner, const Slice& from,
                              const Slice& to, CollectiveOptions options = {});

}  // namespace sluice
