// SPDX-License-Identifier: Apache-2.0
// Opens and closes the ends of channels that an object of the program owns.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/context.hpp>
#include <sluice/error.hpp>

#include <exception>
#include <span>
#include <string>
#include <type_traits>

namespace sluice::kokkos::detail {

[[noreturn]] inline void refuse(const Context& context, Code code, const std::string& why) {
  throw Error(code, context.rank(), -1, 0, 0, why);
}

/// Opens an end of a channel: a Sender, or a Receiver. `where`: a Context, or a Scope.
template <class End, class Where>
End open(Where& where, Rank peer, Tag tag, const Slice& slots, const ChannelOptions& options) {
  if constexpr (std::is_same_v<End, Sender>)
    return where.sender(peer, tag, slots, options);
  else
    return where.receiver(peer, tag, slots, options);
}

/// Opens an end on the scope `name`, for "the `kind` 'name'" of the program. The likeliest reason for Code::misuse is a
/// second object of that name, so the error says so.
template <class End>
End open_named(const std::string& kind, const std::string& name, Scope& scope, Rank peer, Tag tag, const Slice& slots,
               const ChannelOptions& options) {
  try {
    return open<End>(scope, peer, tag, slots, options);
  } catch (const Error& reason) {
    if (reason.code() != Code::misuse) throw;
    throw Error(Code::misuse, reason.rank(), reason.peer(), reason.tag(), 0,
                "the " + kind + " '" + name +
                    "' cannot open its channels; those that are open at once have names of their own (" +
                    reason.what() + ")");
  }
}

/// Closes ends before their owner frees memory that peers access. Returns false if peers may still access it: if an
/// end cannot be closed, or while an exception passes (more than `exceptions` are uncaught), when the destructors of
/// the ends tell the peers that this rank is lost.
template <class... Ends>
bool close_all(int exceptions, std::span<Ends>... ends) noexcept {
  if ((ends.empty() && ...)) return true;
  if (std::uncaught_exceptions() > exceptions) return false;
  const auto close = [](auto all) {
    for (auto& end : all) end.close();
  };
  try {
    (close(ends), ...);
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace sluice::kokkos::detail
