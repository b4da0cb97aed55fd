// SPDX-License-Identifier: Apache-2.0
// Windows, targets, and windows on every rank.
#include "c/handles.hpp"

#include <sluice/ops.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace {

using namespace sluice::c;

/// The place of the old value of an atomic.
sluice::Slice word_of(const sluice_memory* memory, std::size_t offset) {
  return slice_of(memory, offset, sizeof(std::uint64_t));
}

template <sluice::Op op, sluice_op c_op>
constexpr bool same_op = static_cast<int>(op) == static_cast<int>(c_op);
static_assert(same_op<sluice::Op::sum, SLUICE_OP_SUM> && same_op<sluice::Op::min, SLUICE_OP_MIN> &&
              same_op<sluice::Op::max, SLUICE_OP_MAX> && same_op<sluice::Op::replace, SLUICE_OP_REPLACE> &&
              same_op<sluice::Op::bit_and, SLUICE_OP_BIT_AND> && same_op<sluice::Op::bit_or, SLUICE_OP_BIT_OR> &&
              same_op<sluice::Op::bit_xor, SLUICE_OP_BIT_XOR>);

template <sluice::Number number, sluice_number c_number>
constexpr bool same_number = static_cast<int>(number) == static_cast<int>(c_number);
static_assert(same_number<sluice::Number::int32, SLUICE_INT32> && same_number<sluice::Number::uint32, SLUICE_UINT32> &&
              same_number<sluice::Number::int64, SLUICE_INT64> && same_number<sluice::Number::uint64, SLUICE_UINT64> &&
              same_number<sluice::Number::float32, SLUICE_FLOAT32> &&
              same_number<sluice::Number::float64, SLUICE_FLOAT64>);

template <sluice::AtomicsBy by, sluice_atomics_by c_by>
constexpr bool same_atomics = static_cast<int>(by) == static_cast<int>(c_by);
static_assert(same_atomics<sluice::AtomicsBy::processors, SLUICE_ATOMICS_BY_PROCESSORS> &&
              same_atomics<sluice::AtomicsBy::owner, SLUICE_ATOMICS_BY_OWNER> &&
              same_atomics<sluice::AtomicsBy::gpus, SLUICE_ATOMICS_BY_GPUS> &&
              same_atomics<sluice::AtomicsBy::turns, SLUICE_ATOMICS_BY_TURNS>);

static_assert(sizeof(sluice::WindowHandle) == SLUICE_WINDOW_HANDLE_BYTES);
static_assert(sluice::Window::kMostCounters == SLUICE_MOST_COUNTERS);
static_assert(sluice::kAnySource == SLUICE_ANY_SOURCE && sluice::kAnyTag == SLUICE_ANY_TAG);

using Lock = sluice::CollectiveWindow::Lock;
static_assert(static_cast<int>(Lock::shared) == SLUICE_LOCK_SHARED);
static_assert(static_cast<int>(Lock::exclusive) == SLUICE_LOCK_EXCLUSIVE);

sluice::Op op_of(int op) { return value_of(op, sluice::Op::bit_xor, "operation"); }
sluice::Number number_of(int number) { return value_of(number, sluice::Number::float64, "type of numbers"); }

/// A list of the caller's. @throws Error{Code::bad_argument} if it is NULL, and not empty
template <class T>
std::span<const T> list_of(const T* list, std::size_t count, const char* what) {
  if (list == nullptr && count > 0) refuse(sluice::Code::bad_argument, std::string("the list of ") + what + " is NULL");
  return std::span(list, count);
}

std::vector<sluice::Extent> extents_of(const sluice_extent* extents, std::size_t count) {
  std::vector<sluice::Extent> made;
  made.reserve(count);
  for (const sluice_extent& extent : list_of(extents, count, "extents"))
    made.push_back({extent.here, extent.there, extent.bytes});
  return made;
}

}  // namespace

sluice_code sluice_window_open(sluice_context* context, const char* name, const sluice_memory* memory, size_t offset,
                               size_t bytes, sluice_window** window) {
  return create(window,
                [&] { return sluice_window{at(context).window(text_of(name), slice_of(memory, offset, bytes))}; });
}

sluice_code sluice_window_open_counted(sluice_context* context, const char* name, const sluice_memory* memory,
                                       size_t offset, size_t bytes, uint32_t counters, sluice_window** window) {
  return create(window, [&] {
    return sluice_window{at(context).window(text_of(name), slice_of(memory, offset, bytes), counters)};
  });
}

sluice_code sluice_window_open_for_targets(sluice_context* context, const char* name, const sluice_memory* memory,
                                           size_t offset, size_t bytes, uint32_t counters, sluice_window** window) {
  return create(window, [&] {
    return sluice_window{
        at(context).window(text_of(name), slice_of(memory, offset, bytes), counters, sluice::AtomicsOf::targets)};
  });
}

sluice_code sluice_window_close(sluice_window* window, sluice_timeout timeout) {
  return guarded([&] { at(window).close(timeout_of(timeout)); });
}

size_t sluice_window_bytes(const sluice_window* window) { return window == nullptr ? 0 : window->window.bytes(); }

sluice_code sluice_window_atomics(const sluice_window* window, sluice_atomics_by* by) {
  return guarded([&] { result(by) = static_cast<sluice_atomics_by>(at(window).atomics()); });
}

sluice_code sluice_window_handle(const sluice_window* window, size_t offset, size_t bytes, void* handle) {
  return guarded([&] {
    const sluice::WindowHandle made = at(window).handle(offset, bytes);
    std::ranges::copy(made, &result(static_cast<std::byte*>(handle)));
  });
}

sluice_code sluice_window_attach(sluice_window* window, const sluice_memory* memory, size_t offset, size_t bytes,
                                 size_t* place) {
  return guarded([&] {
    size_t& made = result(place);
    made = at(window).attach(slice_of(memory, offset, bytes));
  });
}

sluice_code sluice_window_attach_at(sluice_window* window, size_t place, const sluice_memory* memory, size_t offset,
                                    size_t bytes) {
  return guarded([&] { at(window).attach(place, slice_of(memory, offset, bytes)); });
}

sluice_code sluice_window_detach(sluice_window* window, size_t place, sluice_timeout timeout) {
  return guarded([&] { at(window).detach(place, timeout_of(timeout)); });
}

sluice_code sluice_window_describe(const sluice_window* window, const char** text) {
  return guarded([&] { describe(text, at(window).describe()); });
}

sluice_code sluice_window_wait(sluice_window* window, sluice_stream stream, uint32_t counter, uint64_t count) {
  return guarded([&] { at(window).wait(stream_of(stream), counter, count); });
}

sluice_code sluice_window_wait_for(sluice_window* window, uint32_t counter, uint64_t count, sluice_timeout timeout,
                                   int* reached) {
  return guarded([&] {
    int& has_reached = result(reached);
    has_reached = at(window).wait_for(counter, count, limit_of(timeout)) ? 1 : 0;
  });
}

sluice_code sluice_window_count(sluice_window* window, uint32_t counter, uint64_t* count) {
  return guarded([&] { result(count) = at(window).count(counter); });
}

sluice_code sluice_window_fetch_and_zero(sluice_window* window, uint32_t counter, uint64_t* count) {
  return guarded([&] {
    std::uint64_t& counted = result(count);
    counted = at(window).fetch_and_zero(counter);
  });
}

sluice_code sluice_window_match(sluice_window* window, int source, uint32_t tag, sluice_timeout timeout, int* matched,
                                sluice_notice* notice) {
  return guarded([&] {
    int& has_matched = result(matched);
    const auto found = at(window).match(source, tag, limit_of(timeout));
    has_matched = found ? 1 : 0;
    if (found) give(notice, sluice_notice{found->source, found->tag, found->offset, found->bytes});
  });
}

sluice_code sluice_window_match_many(sluice_window* window, int source, uint32_t tag, size_t count,
                                     sluice_timeout timeout, size_t* matched) {
  return guarded([&] {
    std::size_t& found = result(matched);
    found = at(window).match(source, tag, count, limit_of(timeout));
  });
}

sluice_code sluice_window_free(sluice_window** window) { return destroy(window); }

sluice_code sluice_target_open(sluice_context* context, int peer, const char* name, sluice_target** target) {
  return create(target, [&] { return at(context).target(peer, text_of(name)); });
}

sluice_code sluice_target_open_handle(sluice_context* context, const void* handle, size_t bytes,
                                      sluice_target** target) {
  return create(target, [&] {
    const auto* const first = static_cast<const std::byte*>(handle);
    return at(context).target(std::span(first, first == nullptr ? 0 : bytes));
  });
}

sluice_code sluice_target_bytes(const sluice_target* target, size_t* bytes) {
  return guarded([&] { result(bytes) = at(target).bytes(); });
}

sluice_code sluice_target_mapped(const sluice_target* target, sluice_memory** memory) {
  return create(memory, [&] { return sluice_memory{at(target).mapped()}; });
}

sluice_code sluice_target_put(sluice_target* target, sluice_stream stream, const sluice_memory* memory, size_t offset,
                              size_t bytes, size_t place) {
  return guarded([&] { at(target).put(stream_of(stream), slice_of(memory, offset, bytes), place); });
}

sluice_code sluice_target_get(sluice_target* target, sluice_stream stream, const sluice_memory* memory, size_t offset,
                              size_t bytes, size_t place) {
  return guarded([&] { at(target).get(stream_of(stream), slice_of(memory, offset, bytes), place); });
}

sluice_code sluice_extents_strided(size_t count, size_t bytes, size_t here_apart, size_t there_apart, size_t there,
                                   sluice_extent* extents) {
  return guarded([&] {
    list_of(extents, count, "extents");
    const auto made = sluice::strided(count, bytes, here_apart, there_apart, there);
    std::ranges::transform(made, extents, [](const sluice::Extent& extent) {
      return sluice_extent{extent.here, extent.there, extent.bytes};
    });
  });
}

sluice_code sluice_target_put_extents(sluice_target* target, sluice_stream stream, const sluice_memory* memory,
                                      size_t offset, size_t bytes, const sluice_extent* extents, size_t count) {
  return guarded(
      [&] { at(target).put(stream_of(stream), slice_of(memory, offset, bytes), extents_of(extents, count)); });
}

sluice_code sluice_target_get_extents(sluice_target* target, sluice_stream stream, const sluice_memory* memory,
                                      size_t offset, size_t bytes, const sluice_extent* extents, size_t count) {
  return guarded(
      [&] { at(target).get(stream_of(stream), slice_of(memory, offset, bytes), extents_of(extents, count)); });
}

sluice_code sluice_target_put_notify(sluice_target* target, sluice_stream stream, const sluice_memory* memory,
                                     size_t offset, size_t bytes, size_t place, uint32_t counter) {
  return guarded([&] { at(target).put_notify(stream_of(stream), slice_of(memory, offset, bytes), place, counter); });
}

sluice_code sluice_target_get_notify(sluice_target* target, sluice_stream stream, const sluice_memory* memory,
                                     size_t offset, size_t bytes, size_t place, uint32_t counter) {
  return guarded([&] { at(target).get_notify(stream_of(stream), slice_of(memory, offset, bytes), place, counter); });
}

sluice_code sluice_target_notify(sluice_target* target, sluice_stream stream, uint32_t counter) {
  return guarded([&] { at(target).notify(stream_of(stream), counter); });
}

sluice_code sluice_target_put_tagged(sluice_target* target, sluice_stream stream, const sluice_memory* memory,
                                     size_t offset, size_t bytes, size_t place, uint32_t tag) {
  return guarded([&] { at(target).put_tagged(stream_of(stream), slice_of(memory, offset, bytes), place, tag); });
}

sluice_code sluice_target_get_tagged(sluice_target* target, sluice_stream stream, const sluice_memory* memory,
                                     size_t offset, size_t bytes, size_t place, uint32_t tag) {
  return guarded([&] { at(target).get_tagged(stream_of(stream), slice_of(memory, offset, bytes), place, tag); });
}

sluice_code sluice_target_accumulate(sluice_target* target, sluice_stream stream, int op, int number,
                                     const sluice_memory* memory, size_t offset, size_t bytes, size_t place) {
  return guarded([&] {
    at(target).accumulate(stream_of(stream), op_of(op), number_of(number), slice_of(memory, offset, bytes), place);
  });
}

sluice_code sluice_target_accumulate_notify(sluice_target* target, sluice_stream stream, int op, int number,
                                            const sluice_memory* memory, size_t offset, size_t bytes, size_t place,
                                            uint32_t counter) {
  return guarded([&] {
    at(target).accumulate_notify(stream_of(stream), op_of(op), number_of(number), slice_of(memory, offset, bytes),
                                 place, counter);
  });
}

sluice_code sluice_target_fetch_add(sluice_target* target, sluice_stream stream, size_t place, uint64_t value,
                                    const sluice_memory* memory, size_t offset) {
  return guarded([&] { at(target).fetch_add(stream_of(stream), place, value, word_of(memory, offset)); });
}

sluice_code sluice_target_swap(sluice_target* target, sluice_stream stream, size_t place, uint64_t value,
                               const sluice_memory* memory, size_t offset) {
  return guarded([&] { at(target).swap(stream_of(stream), place, value, word_of(memory, offset)); });
}

sluice_code sluice_target_compare_swap(sluice_target* target, sluice_stream stream, size_t place, uint64_t expected,
                                       uint64_t desired, const sluice_memory* memory, size_t offset) {
  return guarded(
      [&] { at(target).compare_swap(stream_of(stream), place, expected, desired, word_of(memory, offset)); });
}

sluice_code sluice_target_flush(sluice_target* target, sluice_stream stream) {
  return guarded([&] { at(target).flush(stream_of(stream)); });
}

sluice_code sluice_target_flush_local(sluice_target* target, sluice_stream stream) {
  return guarded([&] { at(target).flush_local(stream_of(stream)); });
}

sluice_code sluice_target_drain(sluice_target* target, sluice_timeout timeout) {
  return guarded([&] { at(target).drain(timeout_of(timeout)); });
}

sluice_code sluice_target_fetch_add_now(sluice_target* target, size_t place, uint64_t value, sluice_timeout timeout,
                                        uint64_t* old) {
  return guarded([&] { give(old, at(target).fetch_add(place, value, timeout_of(timeout))); });
}

sluice_code sluice_target_swap_now(sluice_target* target, size_t place, uint64_t value, sluice_timeout timeout,
                                   uint64_t* old) {
  return guarded([&] { give(old, at(target).swap(place, value, timeout_of(timeout))); });
}

sluice_code sluice_target_compare_swap_now(sluice_target* target, size_t place, uint64_t expected, uint64_t desired,
                                           sluice_timeout timeout, uint64_t* old) {
  return guarded([&] { give(old, at(target).compare_swap(place, expected, desired, timeout_of(timeout))); });
}

sluice_code sluice_target_free(sluice_target** target) {
  if (target == nullptr || *target == nullptr || (*target)->own) return destroy(target);
  return guarded([] { refuse(sluice::Code::misuse, "the target of a collective window is freed with the window"); });
}

namespace {

sluice_code open_collective(sluice_context* context, const char* name, const sluice_memory* memory, size_t offset,
                            size_t bytes, sluice::AtomicsOf atomics, sluice_timeout timeout,
                            sluice_collective_window** window) {
  return create(window, [&] {
    return sluice_collective_window{
        {at(context), text_of(name), slice_of(memory, offset, bytes), atomics, timeout_of(timeout)}, {}};
  });
}

}  // namespace

sluice_code sluice_collective_window_open(sluice_context* context, const char* name, const sluice_memory* memory,
                                          size_t offset, size_t bytes, sluice_timeout timeout,
                                          sluice_collective_window** window) {
  return open_collective(context, name, memory, offset, bytes, sluice::AtomicsOf::programs, timeout, window);
}

sluice_code sluice_collective_window_open_for_targets(sluice_context* context, const char* name,
                                                      const sluice_memory* memory, size_t offset, size_t bytes,
                                                      sluice_timeout timeout, sluice_collective_window** window) {
  return open_collective(context, name, memory, offset, bytes, sluice::AtomicsOf::targets, timeout, window);
}

sluice_code sluice_collective_window_close(sluice_collective_window* window, sluice_timeout timeout) {
  return guarded([&] {
    at(window).close(timeout_of(timeout));
    window->targets.clear();
  });
}

int sluice_collective_window_rank(const sluice_collective_window* window) {
  return window == nullptr ? -1 : window->window.rank();
}

int sluice_collective_window_size(const sluice_collective_window* window) {
  return window == nullptr ? 0 : window->window.size();
}

sluice_code sluice_collective_window_target(sluice_collective_window* window, int rank, sluice_target** target) {
  return guarded([&] {
    sluice_target*& place = result(target);
    sluice::Target& reached = at(window).target(rank);
    place = &window->targets.try_emplace(rank, &reached).first->second;
  });
}

sluice_code sluice_collective_window_fence(sluice_collective_window* window, sluice_timeout timeout) {
  return guarded([&] { at(window).fence(timeout_of(timeout)); });
}

sluice_code sluice_collective_window_post(sluice_collective_window* window, const int* origins, size_t count,
                                          sluice_timeout timeout) {
  return guarded([&] { at(window).post(list_of(origins, count, "origins"), timeout_of(timeout)); });
}

sluice_code sluice_collective_window_start(sluice_collective_window* window, const int* targets, size_t count,
                                           sluice_timeout timeout) {
  return guarded([&] { at(window).start(list_of(targets, count, "targets"), timeout_of(timeout)); });
}

sluice_code sluice_collective_window_complete(sluice_collective_window* window, sluice_timeout timeout) {
  return guarded([&] { at(window).complete(timeout_of(timeout)); });
}

sluice_code sluice_collective_window_wait(sluice_collective_window* window, sluice_timeout timeout) {
  return guarded([&] { at(window).wait(timeout_of(timeout)); });
}

sluice_code sluice_collective_window_test(sluice_collective_window* window, int* completed) {
  return guarded([&] {
    int& has_completed = result(completed);
    has_completed = at(window).test() ? 1 : 0;
  });
}

sluice_code sluice_collective_window_lock(sluice_collective_window* window, int rank, int kind,
                                          sluice_timeout timeout) {
  return guarded([&] { at(window).lock(rank, value_of(kind, Lock::exclusive, "kind of lock"), timeout_of(timeout)); });
}

sluice_code sluice_collective_window_unlock(sluice_collective_window* window, int rank, sluice_timeout timeout) {
  return guarded([&] { at(window).unlock(rank, timeout_of(timeout)); });
}

sluice_code sluice_collective_window_lock_all(sluice_collective_window* window, sluice_timeout timeout) {
  return guarded([&] { at(window).lock_all(timeout_of(timeout)); });
}

sluice_code sluice_collective_window_unlock_all(sluice_collective_window* window, sluice_timeout timeout) {
  return guarded([&] { at(window).unlock_all(timeout_of(timeout)); });
}

sluice_code sluice_collective_window_flush(sluice_collective_window* window, int rank, sluice_timeout timeout) {
  return guarded([&] { at(window).flush(rank, timeout_of(timeout)); });
}

sluice_code sluice_collective_window_flush_all(sluice_collective_window* window, sluice_timeout timeout) {
  return guarded([&] { at(window).flush_all(timeout_of(timeout)); });
}

sluice_code sluice_collective_window_free(sluice_collective_window** window) { return destroy(window); }
