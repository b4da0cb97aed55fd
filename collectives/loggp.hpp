// SPDX-License-Identifier: Apache-2.0
// The costs of messages, as parameters of a model: LogGP (Alexandrov, Ionescu, Schauser, Scheiman: "LogGP:
// Incorporating Long Messages into the LogP Model", 1995), with the costs of copying and combining what has landed
// beside it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::collectives {

/// A cost that grows with bytes: from `from` bytes on it is `fixed` + `per_byte` times the bytes, in nanoseconds.
struct Line {
  std::size_t from = 0;
  double fixed = 0;
  double per_byte = 0;
};

/// Lines, each until the next begins. Nothing costs 0.
class ByteCost {
 public:
  ByteCost() = default;
  explicit ByteCost(std::vector<Line> lines) : lines_(std::move(lines)) {}
  double operator()(std::size_t bytes) const noexcept;
  const std::vector<Line>& lines() const noexcept { return lines_; }
  /// "0:5+0.02,8192:40+0.01": as a file of parameters has it.
  std::string text() const;

 private:
  std::vector<Line> lines_;
};

/// Between two ranks, in nanoseconds.
struct LogGP {
  double latency = 0;  ///< L: from the end of the sender's work to when the receiver can see the message
  double send = 0;     ///< o_s: the sender's work for an empty message
  double receive = 0;  ///< o_r: the receiver's, from when it can see the message until it has released it
  double gap = 0;      ///< g: between the begins of two messages of one sender, at least
  ByteCost bytes;      ///< G: what bytes add to the gap
  ByteCost way;        ///< what bytes add to a message that goes alone: it may be copied several times on its way
  ByteCost copy;       ///< what copying out of where a message has landed adds
  ByteCost combine;    ///< what adding it to numbers in memory adds
  double step = 0;     ///< what a put or a receive of a collective takes beyond o_s or o_r
};

/// All that the choice of an algorithm depends on, besides ranks and sizes.
struct Parameters {
  LogGP mapped;        ///< of ranks that write each other's memory
  LogGP network;       ///< of ranks that a network connects
  std::string source;  ///< for people
};

/// Built in: measured, as loggp.cpp says.
const Parameters& built_in();

/// Reads lines "mapped.L = 120" or "network.G = 0:0+0.3"; what is behind a # is a comment. Keys are L, o_s, o_r, g, G,
/// way, copy, combine and step of `mapped` and `network`; what is not there is as built in. The first line of a cost of
/// bytes begins at 0.
/// @throws std::invalid_argument that names the line, for any other text, and for costs that are negative
Parameters parse_parameters(std::string_view text, std::string source);
/// The text of one of the two, rounded, which `parse_parameters` reads.
std::string text_of(const LogGP& costs, std::string_view name);
/// A text that differs if any of the costs does, for ranks to compare.
std::string exact_text_of(const LogGP& costs);

}  // namespace sluice::collectives
