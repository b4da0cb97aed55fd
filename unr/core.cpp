// SPDX-License-Identifier: Apache-2.0
// Recording the messages of a plan, and closing it.
#include "unr/core.hpp"

#include <exception>
#include <utility>

#include "base/env.hpp"
#include "base/log.hpp"
#include "runtime/cores.hpp"
#include "runtime/kept.hpp"

namespace sluice::unr {
namespace {

std::optional<Timeout> limit_of(const Context& context, const Options& options) {
  if (options.reset_within || !base::read_env().check) return options.reset_within;
  return context.connect_timeout();
}

}  // namespace

std::string early_put_text(Rank receiver, const std::string& signal, std::uint64_t round) {
  return "round " + std::to_string(round) + " would put into memory that rank " + std::to_string(receiver) +
         " has not freed: its signal '" + signal + "' was not reset in epoch " + std::to_string(round - 1);
}

Core::Core(Context& context, std::string name, const Options& options)
    : context_(context), name_(std::move(name)), options_(options), reset_within_(limit_of(context, options)) {}

Error Core::error(Code code, const std::string& what, Rank peer, Key key, std::uint64_t epoch) const {
  return {code, rank(), peer, tag_of(key), epoch, "plan '" + name_ + "': " + what};
}

Error Core::error(Code code, const SignalCore& signal, const std::string& what, Rank peer, Key key) const {
  return {code, rank(), peer, tag_of(key), signal.epoch, "plan '" + name_ + "', signal '" + signal.name + "': " + what};
}

void Core::check_recording() const {
  if (state_ != State::recording) throw error(Code::misuse, "it was committed or closed before");
}

Signal Core::add_signal(std::string_view name, int events) {
  check_recording();
  if (events < 0) throw error(Code::bad_argument, "a signal cannot have " + std::to_string(events) + " events");
  SignalCore& signal = signals_.emplace_back(SignalCore{*this, std::string(name), events, 0, 0, 1, false, {}, {}, {}});
  return Signal(std::shared_ptr<SignalCore>(shared_from_this(), &signal));
}

void Core::add(bool is_send, const Slice& memory, std::vector<Piece> pieces, Rank peer, Key key, const Signal& signal) {
  check_recording();
  if (peer == -1) return;
  if (peer < 0 || peer >= context_.size())
    throw error(Code::bad_argument,
                "there is no rank " + std::to_string(peer) + " among the " + std::to_string(context_.size()));
  SignalCore* const counts = signal.core_.get();
  if (counts != nullptr && &counts->plan != this)
    throw error(Code::bad_argument, "the signal is of another plan", peer, key);
  if (!is_send && counts == nullptr) throw error(Code::bad_argument, "a receive needs a signal", peer, key);
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  (is_send ? sends_ : receives_).push_back({peer, key, memory, std::move(pieces), bytes, counts});
  if (counts != nullptr) ++(is_send ? counts->sends : counts->receives);
}

Key Core::next_exchange() {
  check_recording();
  return static_cast<Key>(++exchanges_) << 32;
}

std::string Core::describe() const {
  std::string text = "plan '" + name_ + "', " + std::to_string(outgoing_.size()) + " puts a round";
  for (const Outgoing& out : outgoing_)
    text += "\n  to rank " + std::to_string(out.end.peer()) + ": " + std::to_string(out.messages) + " messages, " +
            std::to_string(out.bytes) + " bytes" + (out.packing == nullptr ? "" : ", packed") + "; " +
            out.end.describe();
  return text;
}

void Core::close(std::optional<Timeout> timeout) {
  if (state_ == State::closed) return;
  runtime::reclaim();
  state_ = State::broken;
  const Timeout stated = timeout.value_or(context_.connect_timeout());
  base::Limit limit(stated);
  if (const runtime::ChannelEnd* const open = runtime::close_all(ends(), limit)) throw open->not_closed(stated);
  for (const Incoming& in : incoming_) await_unpacked(in, limit);
  state_ = State::closed;
}

std::vector<runtime::ChannelEnd*> Core::ends() const {
  std::vector<runtime::ChannelEnd*> ends;
  const auto add = [&](const ChannelHandle& handle) {
    if (const auto& end = detail::ChannelAccess::end(handle)) ends.push_back(end.get());
  };
  for (const Outgoing& out : outgoing_) add(out.end);
  for (const Incoming& in : incoming_) add(in.end);
  return ends;
}

/// The copies stand behind the last verb of the channel, which its end awaits.
void Core::await_unpacked(const Incoming& in, base::Limit& limit) const {
  if (in.packing == nullptr) return;
  const auto passed = [&] {
    return base::reached(in.packing->done->word, in.last_unpacked) || detail::core_of(in.end).gpu_lost();
  };
  while (!base::wait_until(in.packing->done->parking, passed, limit.next()))
    if (limit.over() && !passed()) throw error(Code::timeout, "a stream has not unpacked a message", in.end.peer());
}

/// Signals may outlive the plan, and the channels with them.
void Core::leave() noexcept {
  if (!origin.here()) return;
  if (std::uncaught_exceptions() > 0) {
    state_ = State::closed;
    outgoing_.clear();
    incoming_.clear();
    return;
  }
  try {
    close(kContextTimeout);
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, reason.what());
  }
}

}  // namespace sluice::unr
