// SPDX-License-Identifier: Apache-2.0
// The steps of a collective that are no messages: copies and combinations of memory, on any stream.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <tuple>

#include "collectives/numbers.hpp"
#include "collectives/operation.hpp"
#include "device/copy.hpp"
#include "runtime/fate.hpp"

namespace sluice::collectives {
namespace {

using Kind = Step::Kind;
using device::ReduceArgs;

constexpr unsigned kThreads = 256;     // of a block
constexpr unsigned kOfThread = 4;      // numbers, unless there are many
constexpr unsigned kMostBlocks = 512;  // then each thread of them takes more

void launch(device::Lane lane, ReduceArgs args) {
  const std::uint64_t blocks = (args.count + kThreads * kOfThread - 1) / (kThreads * kOfThread);
  const unsigned threads = std::min(kThreads, device::threads_for(args.count));
  lane.gpu->launch({device::Kernel::reduce, &args, threads,
                    static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, kMostBlocks))});
}

/// `bytes`: of the result of a combination; of float32, for the others.
void launch(device::Lane lane, Kind kind, Op op, Number number, std::byte* to, const std::byte* first,
            const std::byte* second, std::size_t bytes) {
  const bool combines = kind == Kind::combine;
  const std::size_t size = combines && !is_narrow(number) ? size_of(number) : sizeof(float);
  const auto what = combines              ? ReduceArgs::What::combine
                    : kind == Kind::widen ? ReduceArgs::What::widen
                                          : ReduceArgs::What::narrow;
  launch(lane, {to, first, second, bytes / size, what, op, number});
}

void carry_out_computation(device::Lane lane, const Step& step, const Schedule& schedule, std::byte* to,
                           const std::byte* first, const std::byte* second) {
  const auto [kind, op, number, bytes] = std::tuple(step.kind, schedule.op, schedule.number, step.bytes);
  if (kind == Kind::copy) {
    device::copy(lane, to, first, bytes);
  } else if (lane.gpu != nullptr) {
    launch(lane, kind, op, number, to, first, second, bytes);
  } else if (kind == Kind::combine) {
    combine(op, number, to, first, second, bytes);
  } else if (kind == Kind::widen) {
    widen(number, reinterpret_cast<float*>(to), first, bytes / sizeof(float));
  } else {
    narrow(number, to, reinterpret_cast<const float*>(first), bytes / sizeof(float));
  }
}

}  // namespace

std::byte* Operation::at(const Place& place) const {
  if (place.of == Place::Of::user) return schedule_.slices[place.index].data() + place.offset;
  if (place.of == Place::Of::scratch) return shared_->scratches[place.index].data() + place.offset;
  return ends_[place.index].landed.data() + place.offset;
}

/// The addresses are known now, since the slots of channels follow one another.
void Operation::compute(Stream stream, const Step& step) {
  if (step.kind == Kind::combine && schedule_.function.combine != nullptr) return compute_by_function(stream, step);
  std::byte* const to = at(step.to);
  const std::byte* const first = at(step.first);
  const std::byte* const second = step.kind == Kind::combine ? at(step.second) : nullptr;
  if (step.kind == Kind::copy && to == first) return;  // in place
  const bool enqueues = stream.kind() != Stream::Kind::program_order && capture_ == 0;
  const bool marks = enqueues && std::ranges::count(last_computed_, &step) != 0;
  const std::uint64_t marker = marks ? ++markers_ : 0;
  unmarked_ = !marks;
  // No more than a HostStream has room for: see Work.
  device::in_order(stream, [=, shared = shared_.get(), step = &step](device::Lane lane) {
    base::Progress& passed = shared->passed;
    // A wait that a failure has ended has waited for nothing: a peer may yet write there.
    if (lane.gpu != nullptr || !shared->fate->failed())
      carry_out_computation(lane, *step, shared->schedule, to, first, second);
    if (marker != 0) device::raise(lane, passed.word, marker, passed.parking);  // last: `shared` may be freed then
  });
}

void Operation::compute_by_function(Stream stream, const Step& step) {
  std::byte* const to = at(step.to);
  const std::byte* const first = at(step.first);
  const std::byte* const second = at(step.second);
  unmarked_ = true;
  device::in_order(stream, [=, shared = shared_, bytes = step.bytes](device::Lane lane) {
    shared->combine(lane, to, first, second, bytes);
  });
  if (stream.kind() == Stream::Kind::program_order) fate_->check();
}

void Operation::Shared::combine(device::Lane lane, std::byte* to, const std::byte* first, const std::byte* second,
                                std::size_t bytes) noexcept {
  if (fate->failed()) return;
  std::string why = "an exception that is no std::exception";
  try {
    // The function replaces its second operand.
    std::byte* const result = to == first ? operand.data() : to;
    if (result != second) std::memcpy(result, second, bytes);
    schedule.function.combine(first, result, bytes / schedule.function.bytes);
    if (result != to) std::memcpy(to, result, bytes);
    return;
  } catch (const std::exception& thrown) {
    why = thrown.what();
  } catch (...) {  // NOLINT(bugprone-empty-catch): `why` says so
  }
  fate->fail(Code::aborted, "the function that combines has thrown: " + why);
  fate->report(lane);
}

}  // namespace sluice::collectives
