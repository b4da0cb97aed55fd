// SPDX-License-Identifier: Apache-2.0
// The decisions of a plan before its first round: each rank reads the messages of its peers, the receiver says which of
// them share a put, and the channels are opened.
#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "device/driver.hpp"
#include "runtime/cores.hpp"
#include "runtime/end_info.hpp"
#include "unr/core.hpp"

namespace sluice::unr {
namespace {

bool is_of_gpu(const Slice& memory) { return memory.bytes() != 0 && runtime::extent_of(memory).driver != nullptr; }

std::string bytes_text(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

void Core::commit(Stream stream, std::optional<Timeout> timeout) {
  check_recording();
  const Timeout stated = timeout.value_or(context_.connect_timeout());
  base::Limit limit(stated);
  check_events();
  state_ = State::broken;  // until all is done
  on_gpu_ = device::of_gpu(stream);
  agree(stream, limit, stated);
  for (runtime::ChannelEnd* const end : ends()) end->wait_connected(limit, stated);
  if (on_gpu_) reach_from(stream);
  state_ = State::committed;
}

void Core::check_events() const {
  for (const SignalCore& signal : signals_) {
    const int recorded = signal.sends + signal.receives;
    if (signal.expected != 0 && signal.expected != recorded)
      throw error(Code::misuse, signal,
                  "it is triggered by " + std::to_string(signal.expected) + " events, and " + std::to_string(recorded) +
                      " messages are recorded with it",
                  -1, 0);
  }
}

void Core::agree(Stream stream, base::Limit& limit, Timeout stated) {
  const std::vector<Landing> landings = landings_of(receives_, options_.pack_up_to);
  const auto tables = exchange_tables(context_, name_, entries_of(landings), peers(), limit, stated);
  const Ordered sends = ordered(sends_);
  const Ordered receives = ordered(receives_);
  for (const auto& [peer, entries] : tables) {
    check_direction(peer, true, sends, entries);
    check_direction(peer, false, receives, entries);
  }
  scope_ = context_.scope("unr plan: " + name_);
  open_incoming(landings, stream);
  for (const auto& [peer, entries] : tables) open_outgoing(peer, entries, sends, stream);
}

std::vector<Entry> Core::entries_of(const std::vector<Landing>& landings) const {
  std::vector<Entry> entries;
  const auto entry_of = [](const Message& message, bool is_send) {
    Entry entry;
    entry.key = message.key;
    entry.bytes = message.bytes;
    entry.peer = message.peer;
    entry.is_send = is_send;
    if (message.signal != nullptr)
      message.signal->name.copy(static_cast<char*>(entry.signal), std::size(entry.signal) - 1);
    return entry;
  };
  for (const Message& message : sends_) entries.push_back(entry_of(message, true));
  const std::size_t first = entries.size();
  for (const Message& message : receives_) entries.push_back(entry_of(message, false));
  for (std::size_t channel = 0; channel < landings.size(); ++channel) {
    const Landing& landing = landings[channel];
    for (std::size_t i = 0; i < landing.messages.size(); ++i) {
      Entry& entry = entries[first + landing.messages[i]];
      entry.channel = static_cast<std::uint32_t>(channel);
      entry.offset = landing.offsets[i];
      entry.slot = landing.bytes;
    }
  }
  return entries;
}

std::vector<Rank> Core::peers() const {
  std::vector<Rank> peers;
  for (const Message& message : sends_) peers.push_back(message.peer);
  for (const Message& message : receives_) peers.push_back(message.peer);
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

void Core::check_direction(Rank peer, bool is_send, const Ordered& all, const std::vector<Entry>& entries) const {
  std::map<Key, std::vector<std::uint64_t>> ours;
  for (auto of_key = all.lower_bound({peer, 0}); of_key != all.end() && of_key->first.first == peer; ++of_key)
    for (const std::size_t i : of_key->second)
      ours[of_key->first.second].push_back((is_send ? sends_ : receives_)[i].bytes);
  std::map<Key, std::vector<std::uint64_t>> theirs;
  for (const Entry& entry : entries)
    if (entry.is_send != is_send) theirs[entry.key].push_back(entry.bytes);
  const Rank from = is_send ? rank() : peer;
  const Rank to = is_send ? peer : rank();
  const auto differ = [&](Key key, const std::vector<std::uint64_t>& mine, const std::vector<std::uint64_t>& other) {
    const auto& [sent, received] = is_send ? std::tie(mine, other) : std::tie(other, mine);
    const std::string what =
        "rank " + std::to_string(from) + " sends to rank " + std::to_string(to) + " with " + name_of(key);
    if (sent.size() != received.size())
      throw error(Code::mismatch,
                  what + " " + std::to_string(sent.size()) + " messages, and " + std::to_string(received.size()) +
                      " are received",
                  peer, key);
    for (std::size_t i = 0; i < sent.size(); ++i)
      if (sent[i] != received[i])
        throw error(Code::mismatch,
                    what + " " + bytes_text(sent[i]) + ", and " + bytes_text(received[i]) + " are received", peer, key);
  };
  for (const auto& [key, mine] : ours) differ(key, mine, theirs[key]);
  for (const auto& [key, other] : theirs) differ(key, ours[key], other);
}

ChannelOptions Core::options_for(Stream stream) const { return {.name = name_, .stream = stream}; }

Packing Core::new_packing(std::size_t bytes) const {
  Packing packing;
  packing.slot = Context(context_).allocate(std::max<std::size_t>(bytes, 1));
  return packing;
}

/// Copies between a message and its place in the slot.
void Core::add_copies(Packing& packing, const Message& message, std::size_t offset, bool packs, Stream stream) const {
  if (is_of_gpu(message.memory) && !device::of_gpu(stream))
    throw error(Code::unsupported, "a message in memory of a GPU that is packed needs the stream of a GPU",
                message.peer, message.key);
  packing.memory.push_back(message.memory);
  std::byte* slot = packing.slot.data() + offset;
  auto& copies = is_of_gpu(message.memory) ? packing.gpu_copies : packing.copies;
  for (const Piece& piece : message.pieces) {
    std::byte* const memory = message.memory.data() + piece.offset;
    copies.push_back({packs ? slot : memory, packs ? memory : slot, piece.bytes});
    slot += piece.bytes;
  }
}

void Core::open_incoming(const std::vector<Landing>& landings, Stream stream) {
  for (std::size_t channel = 0; channel < landings.size(); ++channel) {
    const Landing& landing = landings[channel];
    Incoming& in = incoming_.emplace_back();
    Slice slot = receives_[landing.messages[0]].all();
    in.first = receives_[landing.messages[0]].key;
    if (landing.packed) {
      Packing packing = new_packing(landing.bytes);
      for (std::size_t i = 0; i < landing.messages.size(); ++i)
        add_copies(packing, receives_[landing.messages[i]], landing.offsets[i], false, stream);
      slot = packing.slot.slice(0, landing.bytes);
      in.packing = std::make_shared<const Packing>(std::move(packing));
    }
    in.end = scope_.receiver(landing.peer, static_cast<Tag>(channel), slot, options_for(stream));
    landing.signal->incoming.push_back(channel);
  }
}

void Core::open_outgoing(Rank peer, const std::vector<Entry>& entries, const Ordered& all, Stream stream) {
  std::map<Key, std::size_t> matched;                                               // sends of a key
  std::map<std::uint32_t, std::vector<std::pair<std::size_t, std::size_t>>> parts;  // of a channel: sends and offsets
  std::map<std::uint32_t, Entry> firsts;
  for (const Entry& entry : entries) {
    if (entry.is_send) continue;
    parts[entry.channel].emplace_back(all.at({peer, entry.key}).at(matched[entry.key]++), entry.offset);
    firsts.emplace(entry.channel, entry);
  }
  for (const auto& [channel, sends] : parts) open_put(peer, firsts[channel], sends, stream);
}

void Core::open_put(Rank peer, const Entry& first, const std::vector<std::pair<std::size_t, std::size_t>>& parts,
                    Stream stream) {
  Outgoing& out = outgoing_.emplace_back();
  const Message& message = sends_[parts[0].first];
  out.first = first.key;
  out.messages = parts.size();
  out.bytes = first.slot;
  out.signal = static_cast<const char*>(first.signal);
  Slice slot = message.all();
  if (parts.size() > 1 || !message.contiguous()) {
    Packing packing = new_packing(first.slot);
    for (const auto& [send, offset] : parts) add_copies(packing, sends_[send], offset, true, stream);
    slot = packing.slot.slice(0, first.slot);
    out.packing = std::make_shared<const Packing>(std::move(packing));
  }
  out.end = scope_.sender(peer, first.channel, slot, options_for(stream));
  limit_credit(out);
  for (const auto& [send, offset] : parts) {
    SignalCore* const signal = sends_[send].signal;
    if (signal == nullptr) continue;
    std::vector<std::size_t>& routes = signal->outgoing;
    const std::size_t route = outgoing_.size() - 1;
    if (routes.empty() || routes.back() != route) routes.push_back(route);
  }
}

/// Only for a program that has set the limit: a failure ends the channel, and a receiver may just be slow. In program
/// order, where a refused start changes nothing, SLUICE_CHECK sets one too.
void Core::limit_credit(Outgoing& out) const {
  if (!options_.reset_within) return;
  const auto mistake = [name = name_, receiver = out.end.peer(), signal = out.signal](std::uint64_t round) {
    return "plan '" + name + "': " + early_put_text(receiver, signal, round);
  };
  detail::core_of(out.end).limit_credit({*options_.reset_within, tag_of(out.first), mistake});
}

/// Nothing can be mapped behind a stream that waits.
void Core::reach_from(Stream stream) {
  try {
    device::Driver& driver = *device::driver(stream.kind());
    const device::OnDevice current(driver, driver.device_of(stream.handle()));
    const auto reach = [&](const Slice& memory) {
      if (memory.bytes() == 0) return;
      const device::Extent extent = runtime::extent_of(memory);
      if (extent.driver == nullptr) std::ranges::move(device::reach(driver, extent), std::back_inserter(reached_));
    };
    const auto reach_all = [&](const std::shared_ptr<const Packing>& packing) {
      if (packing == nullptr) return;
      reach(packing->slot.all());
      device::reach_for_ever(driver, base::page_of(packing->done->word), base::Progress::kPage);
      packing->done->parking.silence();
      for (const Slice& memory : packing->memory) reach(memory);
    };
    for (const Outgoing& out : outgoing_) reach_all(out.packing);
    for (const Incoming& in : incoming_) reach_all(in.packing);
  } catch (const device::GpuError& reason) {
    throw error(Code::out_of_resources, reason.what());
  }
}

}  // namespace sluice::unr
