// SPDX-License-Identifier: Apache-2.0
// Channels: what all ends have in common, senders, receivers, and the first of several receivers.
#include <sluice/device.hpp>

#include <bit>
#include <cstddef>
#include <string>

#include "c/handles.hpp"

namespace {

using namespace sluice::c;

/// Opens an end: `open` is called with the context or the scope, the slots, and the options.
template <class Open>
auto opened(sluice_context* in, const sluice_memory* memory, std::size_t offset, std::size_t bytes,
            const sluice_channel_options* given, const Open& open) {
  sluice::Context& context = at(in);
  const auto read = options_of<sluice_channel_options>(given, SLUICE_CHANNEL_OPTIONS);
  sluice::ChannelOptions options{.depth = read.depth, .name = text_of(read.name)};
  if (read.stream != nullptr) options.stream = stream_of(*read.stream);
  options.contents = text_of(read.contents);
  options.lengths = read.lengths != 0;
  const sluice::Slice slots = slice_of(memory, offset, bytes);
  if (read.scope == nullptr) return open(context, slots, options);
  sluice::Scope scope = context.scope(read.scope);
  return open(scope, slots, options);
}

void* address_of(const sluice::Slice& slot) noexcept { return slot.data(); }

}  // namespace

sluice_channel* sluice_sender_channel(sluice_sender* sender) { return sender; }

sluice_channel* sluice_receiver_channel(sluice_receiver* receiver) { return receiver; }

sluice_channel* sluice_target_channel(sluice_target* target) { return target; }

sluice_code sluice_channel_connected(sluice_channel* channel, int* connected) {
  return guarded([&] { result(connected) = at(channel).connected() ? 1 : 0; });
}

sluice_code sluice_channel_wait_connected(sluice_channel* channel, sluice_timeout timeout) {
  return guarded([&] { at(channel).wait_connected(timeout_of(timeout)); });
}

sluice_code sluice_channel_close(sluice_channel* channel, sluice_timeout timeout) {
  return guarded([&] { at(channel).close(timeout_of(timeout)); });
}

int sluice_channel_peer(const sluice_channel* channel) { return channel == nullptr ? -1 : channel->handle->peer(); }

uint32_t sluice_channel_tag(const sluice_channel* channel) { return channel == nullptr ? 0 : channel->handle->tag(); }

uint64_t sluice_channel_epoch(const sluice_channel* channel) {
  return channel == nullptr ? 0 : channel->handle->epoch();
}

sluice_code sluice_channel_describe(const sluice_channel* channel, const char** text) {
  return guarded([&] { describe(text, at(channel).describe()); });
}

sluice_code sluice_sender_open(sluice_context* context, int peer, uint32_t tag, const sluice_memory* memory,
                               size_t offset, size_t bytes, const sluice_channel_options* options,
                               sluice_sender** sender) {
  return create(sender, [&] {
    return opened(context, memory, offset, bytes, options,
                  [&](auto& in, const auto& slots, const auto& read) { return in.sender(peer, tag, slots, read); });
  });
}

sluice_code sluice_sender_acquire(sluice_sender* sender, sluice_stream stream, void** slot) {
  return guarded([&] { give(slot, address_of(at(sender).acquire(stream_of(stream)))); });
}

sluice_code sluice_sender_put(sluice_sender* sender, sluice_stream stream) {
  return guarded([&] { at(sender).put(stream_of(stream)); });
}

sluice_code sluice_sender_put_part(sluice_sender* sender, sluice_stream stream, size_t offset, size_t bytes) {
  return guarded([&] { at(sender).put(stream_of(stream), offset, bytes); });
}

sluice_code sluice_sender_credited(sluice_sender* sender, int* credited) {
  return guarded([&] { result(credited) = at(sender).credited() ? 1 : 0; });
}

sluice_code sluice_sender_drain(sluice_sender* sender, sluice_timeout timeout) {
  return guarded([&] { at(sender).drain(timeout_of(timeout)); });
}

sluice_code sluice_sender_free(sluice_sender** sender) { return destroy(sender); }

sluice_code sluice_receiver_open(sluice_context* context, int peer, uint32_t tag, const sluice_memory* memory,
                                 size_t offset, size_t bytes, const sluice_channel_options* options,
                                 sluice_receiver** receiver) {
  return create(receiver, [&] {
    return opened(context, memory, offset, bytes, options,
                  [&](auto& in, const auto& slots, const auto& read) { return in.receiver(peer, tag, slots, read); });
  });
}

sluice_code sluice_receiver_wait(sluice_receiver* receiver, sluice_stream stream, void** slot) {
  return guarded([&] { give(slot, address_of(at(receiver).wait(stream_of(stream)))); });
}

sluice_code sluice_receiver_release(sluice_receiver* receiver, sluice_stream stream) {
  return guarded([&] { at(receiver).release(stream_of(stream)); });
}

sluice_code sluice_receiver_wait_for(sluice_receiver* receiver, sluice_timeout timeout, int* landed, void** slot) {
  return guarded([&] {
    int& has_landed = result(landed);
    const auto arrived = at(receiver).wait_for(limit_of(timeout));
    has_landed = arrived ? 1 : 0;
    if (arrived) give(slot, address_of(*arrived));
  });
}

sluice_code sluice_receiver_closed(const sluice_receiver* receiver, int* closed) {
  return guarded([&] { result(closed) = at(receiver).closed() ? 1 : 0; });
}

sluice_code sluice_receiver_bytes(const sluice_receiver* receiver, size_t* bytes) {
  return guarded([&] { result(bytes) = at(receiver).bytes(); });
}

sluice_code sluice_receiver_free(sluice_receiver** receiver) { return destroy(receiver); }

sluice_code sluice_wait_any_create(sluice_wait_any** wait_any) {
  return create(wait_any, [] { return sluice_wait_any{}; });
}

sluice_code sluice_wait_any_add(sluice_wait_any* wait_any, sluice_receiver* receiver, size_t* index) {
  return guarded([&] { give(index, at(wait_any).add(at(receiver))); });
}

sluice_code sluice_wait_any_wait(sluice_wait_any* wait_any, sluice_timeout timeout, size_t* index, void** slot,
                                 int* closed) {
  return guarded([&] {
    std::size_t& which = result(index);
    int& has_closed = result(closed);
    const auto arrival = at(wait_any).wait(timeout_of(timeout));
    if (!arrival) refuse(sluice::Code::closed, "no receiver is left to wait for");
    which = arrival->index;
    has_closed = arrival->closed() ? 1 : 0;
    if (arrival->slot) give(slot, address_of(*arrival->slot));
  });
}

sluice_code sluice_wait_any_enqueue(sluice_wait_any* wait_any, sluice_stream stream, sluice_ticket** ticket) {
  return create(ticket, [&] { return sluice_ticket{at(wait_any).wait(stream_of(stream))}; });
}

sluice_code sluice_wait_any_enqueue_some(sluice_wait_any* wait_any, sluice_stream stream, sluice_ticket** ticket) {
  return create(ticket, [&] { return sluice_ticket{at(wait_any).wait_some(stream_of(stream))}; });
}

sluice_code sluice_wait_any_release(sluice_wait_any* wait_any, sluice_stream stream, const sluice_ticket* ticket) {
  return guarded([&] { at(wait_any).release(stream_of(stream), at(ticket)); });
}

sluice_code sluice_ticket_arrivals(const sluice_ticket* ticket, size_t* arrivals) {
  return guarded([&] { result(arrivals) = at(ticket).arrivals().size(); });
}

sluice_code sluice_ticket_arrival(const sluice_ticket* ticket, size_t which, sluice_arrival* arrival) {
  return guarded([&] {
    const auto& all = at(ticket).arrivals();
    if (which >= all.size()) refuse(sluice::Code::bad_argument, "the ticket has no arrival " + std::to_string(which));
    const auto& slot = all[which].slot;
    result(arrival) = {all[which].index, slot ? address_of(*slot) : nullptr, slot ? slot->bytes() : 0,
                       all[which].count.value_or(0)};
  });
}

sluice_code sluice_ticket_on_device(const sluice_ticket* ticket, const uint64_t** arrivals,
                                    const sluice_arrival** first) {
  struct Found {
    const uint64_t* arrivals;
    const sluice_arrival* first;
  };
  using sluice::DeviceArrival;
  static_assert(sizeof(sluice_arrival) == sizeof(DeviceArrival));
  static_assert(offsetof(sluice_arrival, index) == offsetof(DeviceArrival, index));
  static_assert(offsetof(sluice_arrival, slot) == offsetof(DeviceArrival, data));
  static_assert(offsetof(sluice_arrival, bytes) == offsetof(DeviceArrival, bytes));
  static_assert(offsetof(sluice_arrival, count) == offsetof(DeviceArrival, count));
  return guarded([&] {
    const sluice_arrival*& to = result(first);  // first: nothing is written if it is null
    const auto found = std::bit_cast<Found>(at(ticket).on_device());
    result(arrivals) = found.arrivals;
    to = found.first;
  });
}

sluice_code sluice_ticket_free(sluice_ticket** ticket) { return destroy(ticket); }

size_t sluice_wait_any_left(const sluice_wait_any* wait_any) {
  return wait_any == nullptr ? 0 : wait_any->wait_any.left();
}

sluice_code sluice_wait_any_free(sluice_wait_any** wait_any) { return destroy(wait_any); }
