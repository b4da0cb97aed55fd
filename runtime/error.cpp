// SPDX-License-Identifier: Apache-2.0
#include "runtime/error_text.hpp"

#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

namespace sluice {
namespace {

/// Splits the line of an Error that another one reports, into what it tells and where it was: the line of the other
/// names both places in one bracket. Where there is none, the second part is empty.
std::pair<std::string_view, std::string_view> split(std::string_view what) {
  constexpr std::string_view kOpen = " (rank ";
  const std::size_t open = what.rfind(kOpen);
  if (open == std::string_view::npos || what.find(')', open) != what.size() - 1) return {what, {}};
  const std::string_view where = what.substr(open + 2, what.size() - open - 3);
  constexpr std::string_view kCause = "; cause: ";
  const std::size_t cause = where.find(kCause);
  return {what.substr(0, open), cause == std::string_view::npos ? where : where.substr(cause + kCause.size())};
}

std::string line(Code code, Rank rank, Rank peer, Tag tag, std::uint64_t epoch, const std::string& what) {
  std::string text = std::string(name(code)) + ": " + what;
  std::string where;
  const auto add = [&](const std::string& part) { where += (where.empty() ? "" : ", ") + part; };
  if (rank >= 0) add("rank " + std::to_string(rank));
  if (peer >= 0) add("peer " + std::to_string(peer) + ", tag " + std::to_string(tag));
  if (epoch > 0) add("epoch " + std::to_string(epoch));
  const auto [told, cause] = split(what);
  if (where.empty() || cause.empty()) return text + (where.empty() ? "" : " (" + where + ")");
  return std::string(name(code)) + ": " + std::string(told) + " (" + where +
         (cause == where ? "" : "; cause: " + std::string(cause)) + ")";
}

}  // namespace

const char* name(Code code) noexcept {
  constexpr const char* kNames[] = {"bad_argument", "mismatch",    "misuse",           "timeout", "peer_lost",
                                    "transport",    "unsupported", "out_of_resources", "aborted", "closed"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Code::closed));
  const auto index = static_cast<std::size_t>(code) - 1;  // 0 is no failure, in C
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

Error::Error(Code code, Rank rank, Rank peer, Tag tag, std::uint64_t epoch, const std::string& what)
    : std::runtime_error(line(code, rank, peer, tag, epoch, what)), code_(code), rank_(rank), peer_(peer), tag_(tag),
      epoch_(epoch) {}

std::string detail::without_kind(const Error& error) {
  const std::string_view what = error.what();
  const std::string kind = std::string(name(error.code())) + ": ";
  return std::string(what.starts_with(kind) ? what.substr(kind.size()) : what);
}

}  // namespace sluice
