// SPDX-License-Identifier: Apache-2.0
// The paths to one peer: pairs of a rail here and one there. Each is tried by a probe in each direction before anything
// else is sent, and again and again later, since the end of a path is not the end of the peer.
//
// A probe writes a few unused bytes and completes when they have been delivered. The peer may be stopped, or may start
// late. So time counts against a probe only while the peer answers questions over its socket. A probe waits its turn
// behind data, and its answer behind the data of the peer, which a slow network takes long for: each end tells how much
// there is.
#pragma once

#include <optional>

#include "backends/ofi/expected.hpp"
#include "backends/ofi/pairs.hpp"
#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

class Paths final : public PathFinder, private Owner {
 public:
  /// `near`: rails of smaller numbers are on the nearest devices.
  Paths(Station& station, Destination& there, Address ours, Address theirs, bool here, std::size_t near);
  ~Paths() override;

  base::Clock::time_point tend(base::Clock::time_point now, std::vector<Blob>& words) override;
  void heard(const Blob& word) override;
  std::optional<std::string> verdict() const override;
  /// The peer is dead.
  void lost();

  /// Once ready: where the peer's puts land.
  const Endpoints& endpoints() const noexcept { return endpoints_; }

 private:
  using Clock = base::Clock;

  enum class Stage : std::uint8_t {
    begun,    // the peer's grades are not known yet
    trying,   // probes are under way
    told,     // the peer knows which of ours have arrived
    settled,  // both know
    lost
  };
  enum class Word : std::uint8_t { grades, opened, known, arrived, question, answer };

  struct Path {
    Pair pair;
    Route* route = nullptr;
    std::unique_ptr<Operation> probe;
    bool due = true;       // to be posted
    bool arrived = false;  // the last probe
    bool dead = false;
    Expected connection;
    std::string why;               // the last probe has failed
    Clock::time_point next;        // when it is posted again
    Clock::time_point next_probe;  // once this one has arrived
    Clock::duration waited{};
    Clock::duration granted{};  // for silence of the peer

    bool waits() const noexcept { return !dead && !arrived; }
    void fail(const char* reason) {
      why = reason;
      dead = true;
    }
  };

  void ended(Operation& operation, const std::string& why_not) override;
  Clock::time_point next_call(Clock::time_point now) const;
  Clock::duration time_for_data() const;
  std::uint64_t bytes_here() const;
  Blob say_answer() const;
  Blob say_grades() const;
  void hear_grades(const Blob& word);
  void open_all(Clock::time_point now, std::vector<Blob>& words);
  bool open(Path& path, Clock::time_point now);
  Blob say_opened() const;
  void hear_opened(const Blob& word);
  void add(const std::vector<Blob>& names);
  Blob say_bits(Word kind, bool (*is)(const Path& path)) const;
  void hear_known(std::uint8_t known_there);
  void count_time(Clock::time_point now, std::vector<Blob>& words);
  void post_probes(Clock::time_point now);
  void post(Path& path, Clock::time_point now);
  void judge(std::vector<Blob>& words);
  void settle(std::uint8_t arrived_there);
  void end(Path& path);
  void give_up(Path& path);
  void find_endpoints();
  void probe_again(Clock::time_point now);
  std::string text_of(const Path& path) const;
  std::string reason(const Path& path) const;

  Station& station_;
  Destination& there_;
  const Address ours_;
  const Address theirs_;
  const std::size_t near_;
  const Clock::duration patience_;
  const Clock::duration step_;  // between questions
  Grades grades_;
  Stage stage_ = Stage::begun;
  std::vector<Path> paths_;
  Endpoints endpoints_;
  std::optional<std::uint8_t> arrived_there_;  // by number of the path: whether the peer's probe has arrived
  bool introduced_ = false;
  bool opened_ = false;                           // or dead: all paths
  std::optional<std::vector<Blob>> names_there_;  // which endpoints write to us: to be added, once ours are open
  bool known_there_ = false;                      // the peer has added the endpoints that write to it
  Clock::time_point open_by_;
  std::uint64_t bytes_there_ = 0;  // of the peer, which are under way to us
  bool asked_by_peer_ = false;
  bool answered_ = false;
  std::optional<Clock::time_point> asked_;  // a question is under way
  Clock::time_point counted_;               // the time up to which `waited` counts
};

}  // namespace sluice::backends::ofi
