// SPDX-License-Identifier: Apache-2.0
#include <sluice/error.hpp>

#include <cstddef>
#include <iterator>

namespace sluice {
namespace {

std::string line(Code code, Rank rank, Rank peer, Tag tag, std::uint64_t epoch, const std::string& what) {
  std::string text = std::string(name(code)) + ": " + what;
  std::string where;
  const auto add = [&](const std::string& part) { where += (where.empty() ? "" : ", ") + part; };
  if (rank >= 0) add("rank " + std::to_string(rank));
  if (peer >= 0) add("peer " + std::to_string(peer) + ", tag " + std::to_string(tag));
  if (epoch > 0) add("epoch " + std::to_string(epoch));
  return where.empty() ? text : text + " (" + where + ")";
}

}  // namespace

const char* name(Code code) noexcept {
  constexpr const char* kNames[] = {"bad_argument", "mismatch",    "misuse",           "timeout", "peer_lost",
                                    "transport",    "unsupported", "out_of_resources", "aborted", "closed"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Code::closed) + 1);
  const auto index = static_cast<std::size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

Error::Error(Code code, Rank rank, Rank peer, Tag tag, std::uint64_t epoch, const std::string& what)
    : std::runtime_error(line(code, rank, peer, tag, epoch, what)), code_(code), rank_(rank), peer_(peer), tag_(tag),
      epoch_(epoch) {}

}  // namespace sluice
