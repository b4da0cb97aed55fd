// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/access.hpp"

#include "backends/ofi/rma.hpp"

#include <algorithm>
#include <stdexcept>

namespace sluice::backends::ofi {
namespace {

/// Offered memory as the peer gets to know it, at the owner's first endpoint. All offers of a rank are reached there,
/// since changes by two NICs need not be atomic. Text that follows says why the peer cannot reach it.
struct Offered {
  Spot spot;
  std::uint64_t bytes = 0;
  std::uint64_t counters = 0;  ///< how many can be named by the number of a put
  std::uint64_t index = 0;     ///< of the counters, for that number
};

/// Registration and index of offered memory, given back once the peer's access has ended.
class Kept {
 public:
  Kept(Station& station, std::shared_ptr<const bool> lost) : station_(station), lost_(std::move(lost)) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    const std::lock_guard lock(station_.mutex);
    memory_.reset();
    if (counting_) station_.arrivals.remove(*counting_, !*lost_);
  }

  // With the station's mutex.
  const Registration& register_memory(const device::Extent& memory) {
    memory_ = station_.rails.front()->registered(memory);
    return *memory_;
  }
  /// Lets puts count, if a number can name each of the counters. Returns whether it can.
  bool count(Counters counters, Offered& offered) {
    const auto names = [&](std::uint64_t index) { return station_.manner.names_counters(index, counters.size()); };
    if (counters.empty() || !names(0)) return false;
    offered.index = station_.arrivals.add(counters);
    counting_ = offered.index;
    if (!names(offered.index)) return false;
    offered.counters = counters.size();
    return true;
  }

 private:
  Station& station_;
  const std::shared_ptr<const bool> lost_;
  std::shared_ptr<Registration> memory_;
  std::optional<std::uint64_t> counting_;
};

class RmaAccess final : public EngineAccess, private Mover {
 public:
  RmaAccess(Station& station, Destination& there, int depth, device::Watch& watch, const Offered& offered)
      : EngineAccess(unmapped_bounds(offered.bytes, offered.counters), depth, watch,
                     station.provider + ": posted by the engine" + (offered.counters == 0 ? "" : kCounting)),
        Mover(station, there, watch, "a request"), route_(there.route(0)), rail_(*route_.rail),
        index_(offered.index), offered_{route_.from, route_.address, offered.spot},
        depth_(static_cast<std::size_t>(depth)), flights_(depth_ + kPieces + 1) {
    if (!rail_.reads()) throw std::runtime_error(station.provider + " cannot read the memory of peers");
    const std::lock_guard lock(station.mutex);
    for (std::size_t i = 0; i < flights_.size(); ++i) {
      Operation& operation = flights_[i].operation;
      operation.lane = i;
      operation.piece = i >= depth_;
      rail_.know(operation, *this);
    }
    join();
  }

  /// The provider may still use flights that are under way, and the memory.
  ~RmaAccess() override {
    const std::lock_guard lock(station_.mutex);
    give_up([](std::uint64_t) {});
    leave();
    if (posted_flights() != 0) {
      for (const Flight& flight : flights_) {
        if (flight.local != nullptr) rail_.disown(*flight.local);
      }
      station_.orphaned_flights.push_back(std::move(flights_));
    }
    flights_.clear();
  }

  const void* in_order() const noexcept override { return station_.manner.ordered ? &route_ : nullptr; }

 private:
  static constexpr const char* kCounting = ", counted by a number";

  bool post(std::uint64_t epoch, const Request& request) override {
    const std::lock_guard lock(station_.mutex);
    if (suspicious() || lost()) return false;  // the rest waits for the verdict too
    return attempt(refused_, route_, [&] {
      if (!post_pieces(request)) return false;
      Flight& flight = flights_[epoch % depth_];
      flight.operation.epoch = epoch;
      const Range rest{posted_, request.local.size() - posted_};
      const bool put = request.kind == Request::Kind::put;
      RmaPut::Rider rider;
      std::optional<std::uint64_t> number;
      if (request.counter != Request::kNone) {
        number = station_.manner.number(index_, request.counter);
      } else if (put && rest.bytes != 0 && !number_goes_behind(station_.manner, rest.bytes)) {
        rider = RmaPut::Rider::of(station_, there_, offered_);
        if (rider.is_there()) number = rider.number(station_.manner);
      }
      flight.count = put || rest.bytes == 0 ? std::nullopt : std::exchange(number, std::nullopt);
      const Posted posted = start(flight, request, rest, number);
      if (posted == Posted::busy) return false;
      rider.posted(flight.operation);
      posted_ = 0;
      if (posted == Posted::over) over(epoch);
      return true;
    });
  }

  /// Posts all pieces but the last of an access that has more bytes than a message. The last piece ends the access, so
  /// it waits until the others have completed.
  bool post_pieces(const Request& request) {
    const std::size_t most = rail_.largest_message();
    while (request.local.size() - posted_ > most) {
      const auto piece = std::find_if(pieces_begin(), pieces_end(), is_free);
      if (piece == pieces_end() || start(*piece, request, {posted_, most}) == Posted::busy) return false;
      refused_.end();
      posted_ += most;
    }
    return posted_ == 0 || no_piece_is_posted();
  }

  /// `part`: of the bytes of the request. `number`: of the counter that the write raises.
  Posted start(Flight& flight, const Request& request, Range part, std::optional<std::uint64_t> number = {}) {
    if (part.bytes == 0 && !number) return Posted::over;
    if (part.bytes == 0) return write_number(flight, number, true);
    std::byte* const here = request.local.data() + part.offset;
    auto local = registration_of(request.local);
    void* const desc = local->desc();
    Remote there = offered_;
    there.spot.address += request.offset + part.offset;
    const Posted posted =
        request.kind == Request::Kind::get
            ? rail_.read(here, part.bytes, desc, there, flight.operation)
            : rail_.write({here, part.bytes, desc, local->of_gpu}, there, number, true, flight.operation);
    if (posted != Posted::under_way) return posted;
    flight.local = std::move(local);  // a flight that has it is under way
    flight.bytes = part.bytes;
    return posted;
  }

  Posted write_number(Flight& flight, std::optional<std::uint64_t> number, bool delivered) {
    return rail_.write_unused({route_.from, route_.address, route_.flushes}, number, delivered, flight.operation);
  }

  /// Counts the gets that have completed. No count is answered where writes are in order: the owner's library would
  /// answer before it shows the count. A flush answers for all.
  void post_counts() {
    if (suspicious() || lost()) return;  // the rest waits for the verdict too
    const bool answered = !station_.manner.ordered;
    std::erase_if(due_, [&](Flight* flight) {
      return attempt(count_refused_, route_, [&] {
        const Posted posted = write_number(*flight, flight->count, answered);
        if (posted == Posted::busy) return false;
        flight->count.reset();
        const std::uint64_t epoch = flight->operation.epoch;
        if (!answered) counts_unawaited();
        if (posted == Posted::over) over(epoch);
        return true;
      });
    });
  }

  Flight& flush() noexcept { return flights_.back(); }
  bool flush_is_due() const noexcept { return !base::reached(counted, asked_) && !flights_.back().operation.posted; }
  void ask_for_counts() override {
    const std::lock_guard lock(station_.mutex);
    asked_ = uncounted();
    station_.attend_to(*this);
    post_flush();
  }
  void post_flush() {
    if (!flush_is_due() || suspicious() || lost()) return;
    attempt(count_refused_, route_, [&] {
      flush().operation.epoch = uncounted();
      return write_number(flush(), {}, true) != Posted::busy;
    });
  }
  /// So many counts have arrived, or nothing will be known of them.
  void end_counts(std::uint64_t last) noexcept {
    base::raise(counted, std::max(last, counted.value.load(std::memory_order_relaxed)), watch_.done_parking);
  }

  /// A registration ends with its region, so the last one is not used for memory that the program has freed.
  std::shared_ptr<Registration> registration_of(std::span<std::byte> local) {
    if (auto last = last_.lock(); last != nullptr && last->holds(local.data(), local.size())) return last;
    auto found = rail_.registered({local.data(), local.size()});
    last_ = found;
    return found;
  }

  void ended(Operation& operation, const std::string& why_not) override {
    Flight& flight = flights_[operation.lane];
    flight.local.reset();
    const bool failed = !why_not.empty() && !lost();
    if (failed) {
      const std::string why = failure_of(route_, why_not);
      suspect(why);
      RmaPut::Rider::suspect(there_, operation, why);
    }
    if (&flight == &flush() && !failed) {
      end_counts(operation.epoch);
      if (flush_is_due()) station_.attend_to(*this);
    }
    if (operation.piece) return;  // the access ends with its last piece, or is left out
    if (!failed && (!flight.count || lost())) return over(operation.epoch);
    if (failed) {
      lost_.push_back(operation.epoch);
    } else {
      due_.push_back(&flight);
      post_counts();
    }
    station_.attend_to(*this);
  }

  bool attend() override {
    if (gives_up()) {
      give_up([this](std::uint64_t epoch) { over(epoch); });
      leave_uncounted();
      end_counts(uncounted());
      gave_up_ = true;
    }
    if (!watch_.failed()) {
      post_counts();
      post_flush();
      judge();
      return !rests();
    }
    for (const std::uint64_t epoch : lost_) over(epoch);
    lost_.clear();
    leave_uncounted();
    if (suspicious()) end_counts(uncounted());
    post_flush();
    return flush_is_due();
  }

  void leave_uncounted() {
    for (const Flight* flight : due_) over(flight->operation.epoch);
    due_.clear();
  }

  /// Pieces of an access that goes no further have completed.
  bool at_rest(std::size_t) override {
    const std::lock_guard lock(station_.mutex);
    return no_piece_is_posted();
  }

  bool rests() const override {
    if (lost() && !gave_up_) return false;
    return due_.empty() && lost_.empty() && !flush_is_due() && (!suspicious() || watch_.failed());
  }

  /// Nothing waits for the operations under way any more: `each(epoch)`.
  template <class Each>
  void give_up(Each each) {
    for (Flight& flight : flights_) {
      if (!flight.operation.posted || flight.operation.owner == nullptr) continue;
      const bool ends = !flight.operation.piece;
      rail_.give_up(flight.operation);
      if (ends) each(flight.operation.epoch);
    }
  }

  static bool is_free(const Flight& flight) noexcept {
    return !flight.operation.posted || flight.operation.owner == nullptr;  // given up
  }
  std::vector<Flight>::iterator pieces_begin() noexcept {
    return flights_.begin() + static_cast<std::ptrdiff_t>(depth_);
  }
  std::vector<Flight>::iterator pieces_end() noexcept { return flights_.end() - 1; }
  bool no_piece_is_posted() { return std::all_of(pieces_begin(), pieces_end(), is_free); }

  bool uses(const Route& route) const noexcept override { return &route == &route_; }
  std::size_t bytes_under_way() const override {
    std::size_t bytes = 0;
    for (const Flight& flight : flights_) bytes += flight.local == nullptr ? 0 : flight.bytes;
    return bytes;
  }
  std::size_t posted_flights() const {
    const auto posted = [](const Flight& flight) { return flight.operation.posted; };
    return static_cast<std::size_t>(std::ranges::count_if(flights_, posted));
  }

  const Route& route_;
  Rail& rail_;  // stays when the route is lost
  const std::uint64_t index_;
  Remote offered_;
  static constexpr std::size_t kPieces = 4;
  const std::size_t depth_;
  std::vector<Flight> flights_;  // by epoch mod depth; pieces of the access that is next, all but its last; the flush
  std::size_t posted_ = 0;       // bytes of that access that are posted
  std::weak_ptr<Registration> last_;
  std::vector<std::uint64_t> lost_;  // epochs that have failed, and wait for the verdict
  std::vector<Flight*> due_;         // gets that have completed, and are to be counted
  Refusals refused_;
  Refusals count_refused_;
  std::uint64_t asked_ = 0;  // the last count that a flush is to answer for
  bool gave_up_ = false;     // nothing is under way any more, since the peer was lost
};

}  // namespace

Offer offer_memory(Station& station, const Destination& there, const device::Extent& memory,
                   const device::Extent& counters) {
  check_offered(memory);
  auto kept = std::make_shared<Kept>(station, there.lost);
  const std::lock_guard lock(station.mutex);
  try {
    Offered offered{kept->register_memory(memory).spot(memory.data), memory.bytes};
    const bool counts = kept->count(counters_at(counters.data, counters.bytes), offered);
    return {{bytes_of(offered), {}, {}}, station.provider + ": offered in place", std::move(kept), counts};
  } catch (const std::runtime_error& reason) {
    if (memory.driver == nullptr) throw;
    return unreachable(Offered{}, station.provider + ": " + reason.what());
  }
}

std::unique_ptr<Access> open_access(Station& station, Destination& there, int depth, device::Watch& watch,
                                    const Key& key) {
  return std::make_unique<RmaAccess>(station, there, depth, watch, offered_by<Offered>(key));
}

}  // namespace sluice::backends::ofi
