// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "device/kernels.hpp"
#include "runtime/engine.hpp"
#include "runtime/handles.hpp"
#include "runtime/registry.hpp"

namespace sluice::detail {
namespace {

using backends::RungPut;
using runtime::Verb;

using Bells = std::vector<std::shared_ptr<backends::Doorbell>>;

/// Null: a network device has no counter left for it.
std::shared_ptr<backends::Doorbell> bell_for(RungPut& put) {
  try {
    return put.new_bell();
  } catch (const std::runtime_error& reason) {
    base::log(base::LogLevel::info, std::string("the puts of a plan share no doorbell: ") + reason.what());
    return nullptr;
  }
}

/// Puts that can share a bell get one. Returns the bells. `first`: the epoch of each before the plan's first.
template <class Row>
Bells fuse(runtime::Engine& engine, const std::vector<Row>& rows, std::uint64_t Row::*first) {
  std::map<const void*, std::shared_ptr<backends::Doorbell>> bells;
  for (const Row& row : rows) {
    RungPut* const put = row.core->rung();
    if (put == nullptr || row.core->lengths() != nullptr) continue;
    const auto [of_kind, is_first] = bells.try_emplace(put->bell_kind());
    if (is_first) of_kind->second = bell_for(*put);
    if (of_kind->second != nullptr) engine.move(*put, of_kind->second, row.*first);
  }
  Bells all;
  for (auto& [kind, bell] : bells) {
    if (bell != nullptr) all.push_back(std::move(bell));
  }
  return all;
}

/// So that the next `push_back` does not throw.
template <class T>
void make_room(std::vector<T>& all) {
  constexpr std::size_t kFirst = 8;
  if (all.size() == all.capacity()) all.reserve(std::max(kFirst, 2 * all.size()));
}

/// A bell of the plan fires it.
bool is_fused(const RungPut* put) { return put != nullptr && put->shared(); }

/// The put, or the credit, of `epoch`; if a bell of the plan fires it, this only arms it.
void fire(device::Lane lane, runtime::ChannelEnd& end, std::uint64_t epoch, backends::Range part) {
  if (!is_fused(end.rung())) return end.enqueue(lane, epoch, part);
  end.await_armable(lane, epoch);
  end.tell_of_firing(lane, epoch, part);
  end.rung()->arm(epoch, part);
}

}  // namespace

PlanCore::~PlanCore() {
  if (committed_) return;  // only the plan drove its channels: now they can only be closed
  for (auto* end : ends_) end->leave_plan();
}

/// The plan's error names the first of its channels that has something to do with it.
void PlanCore::begin_use(Verb verb, const void* from) {
  const runtime::Call call{verb, base::Place(from)};
  if (const auto other = checks_->user.enter(call)) {
    const std::string what =
        "a plan is used by two threads at once: " + text_of(call) + ", while another thread is in " + text_of(*other);
    if (ends_.empty()) throw misuse(what);
    ends_.front()->misuse(ends_.front()->epoch(), what);
  }
  runtime::ChannelEnd* failed = nullptr;
  for (auto* end : ends_) {
    if (end->memory_is_gone(&call) && failed == nullptr) failed = end;
  }
  if (failed == nullptr) return;
  checks_->user.leave();
  failed->check();
}

/// Epoch of the first channel: channels may have had different numbers of epochs before the plan.
std::uint64_t PlanCore::epoch_of(Verb verb) const noexcept {
  if (verb == Verb::acquire || verb == Verb::start)
    return (out_.empty() ? 0 : out_.front().first) + counts_.starts + (verb == Verb::acquire ? 1 : 0);
  if (verb == Verb::wait) return (in_.empty() ? 0 : in_.front().first_wait) + counts_.waits;
  return (in_.empty() ? 0 : in_.front().first_release) + counts_.releases;
}

void PlanCore::check_adding() const {
  if (committed_) throw misuse("the plan is committed: no channel can be added");
}

void PlanCore::join(runtime::ChannelEnd& end) {
  check_adding();
  if (&end.services() != services_.get()) throw misuse("the channel belongs to another context than the plan");
  make_room(ends_);
  end.join_plan();
  ends_.push_back(&end);
}

void PlanCore::add(std::shared_ptr<SenderCore> sender) {
  make_room(out_);  // the plan keeps what has joined it
  join(*sender);
  sender->place_in_plan = out_.size();
  out_.push_back({std::move(sender)});
}

void PlanCore::add(std::shared_ptr<ReceiverCore> receiver) {
  make_room(in_);
  join(*receiver);
  receiver->place_in_plan = in_.size();
  in_.push_back({std::move(receiver)});
}

void PlanCore::commit(Stream stream, std::optional<Timeout> timeout) {
  check_adding();
  device::check_supported(stream, rank_);
  const Timeout stated = timeout.value_or(services_->limits.connect);
  base::Limit limit(stated);
  for (auto* end : ends_) end->wait_connected(limit, stated);
  for (auto* end : ends_) end->complete(limit);
  for (auto* end : ends_) end->check_bindable(stream);
  if (device::of_gpu(stream)) {
    for (auto* end : ends_) end->bind_to_gpu(stream);
    gpu_ = state_of(stream).device;
  }
  // From here on nothing throws, unless memory is lacking: a commit that failed may be tried again.
  if (device::of_gpu(stream)) {
    // Small puts come first: one kernel does them all, and their signals then wait for no large put.
    std::stable_sort(out_.begin(), out_.end(),
                     [](const PlanOut& a, const PlanOut& b) { return a.core->slot_bytes < b.core->slot_bytes; });
    for (std::size_t i = 0; i < out_.size(); ++i) out_[i].core->place_in_plan = i;
  }
  for (auto* end : ends_) end->drive_by_plan();
  for (auto& out : out_) out.first = out.core->epoch();
  for (auto& in : in_) {
    in.first_wait = in.core->epoch();
    in.first_release = in.core->released();
  }
  if (device::of_gpu(stream)) {
    kernels_ = std::make_unique<KernelPlan>(*device::driver(stream.kind()), gpu_, out_, in_);
  } else {
    share_bells();
  }
  stream_ = stream;
  committed_ = true;
}

/// A plan fails as a whole.
void PlanCore::fail_if_stopped(device::Lane lane) noexcept {
  if (lane.host == nullptr || lane.host->stopped_by() == nullptr) return;
  for (auto* end : ends_) end->fail_if_stopped(lane);
}

/// On a GPU's stream bells stay apart: kernels ring each after its own credit. If the stream itself can write the
/// bells, it still writes them in one operation.
void PlanCore::share_bells() {
  put_bells_ = fuse(services_->engine, out_, &PlanOut::first);
  credit_bells_ = fuse(services_->engine, in_, &PlanIn::first_release);
}

/// A stream may begin to capture, or have ended, since it was last used.
void PlanCore::update_capture(std::uint64_t now) {
  if (now == capture_) return;
  if (std::exchange(capture_, 0) != 0) end_capture();
  if (now == 0) return;
  let_kernels_drive();
  at_capture_ = counts_;
  capture_ = now;
}

/// A captured graph must leave every channel at the slot where it finds it.
void PlanCore::end_capture() {
  const Counts captured{counts_.starts - at_capture_.starts, counts_.waits - at_capture_.waits,
                        counts_.releases - at_capture_.releases};
  counts_ = at_capture_;
  for (const auto* end : ends_) {
    const std::uint64_t epochs = end->sends() ? captured.starts : captured.waits;
    if (epochs % end->depth() == 0) continue;
    end->misuse(end->epoch(), "the graph that was captured last must not be launched: it moves a channel of " +
                                  std::to_string(end->depth()) + " slots on by " + std::to_string(epochs) +
                                  ", and a replay would find another slot than was captured");
  }
}

void PlanCore::let_kernels_drive() {
  if (kernels_->begun()) return;
  if (!kernels_->why_not().empty())
    throw Error(Code::unsupported, rank_, -1, 0, 0, "the plan cannot be captured: " + kernels_->why_not());
  const std::lock_guard lock(services_->registry.mutex());
  kernels_->begin();
}

/// The host checks what it can: it does not count epochs that kernels have yet to begin.
void PlanCore::check_for_kernels(const runtime::ChannelEnd& end) const {
  end.check_driven();
  if (capture_ == 0) end.check_next();
}

void PlanCore::check_stream(Stream stream) {
  if (!committed_) throw misuse("the plan is not committed yet");
  device::check_supported(stream, rank_);
  if (stream.kind() != stream_.kind()) throw misuse("the plan was committed for another kind of stream");
  if (device::of_gpu(stream)) {
    const device::StreamState now = state_of(stream);
    if (now.device != gpu_) {
      throw misuse("the stream is of GPU " + std::to_string(now.device) +
                   ", and the plan is used with streams of GPU " + std::to_string(gpu_));
    }
    update_capture(now.capture);
  }
  if (remembered_ == stream) return;
  for (auto* end : ends_) end->remember(stream);
  remembered_ = stream;
}

device::StreamState PlanCore::state_of(Stream stream) {
  try {
    return device::driver(stream.kind())->look_at(stream.handle());
  } catch (const device::InvalidCapture& reason) {
    leave_capture();  // there will be no graph
    throw misuse(reason.what());
  } catch (const device::GpuError& reason) {
    throw misuse(reason.what());
  }
}

void PlanCore::check_failures(Stream stream) const {
  if (stream.kind() == Stream::Kind::host) return;
  for (auto* end : ends_) end->check();
}

void PlanCore::acquire(Stream stream) {
  check_stream(stream);
  for (const auto& out : out_) out.core->check_driven();
  const std::uint64_t next = counts_.starts + 1;
  if (kernels_drive()) return launch(stream, "acquire", [&] { kernels_->acquire(stream, next, capture_ != 0); });
  const auto some_awaits = [&](bool rung) {
    return std::ranges::any_of(out_, [&](const PlanOut& out) {
      return (out.core->rung() != nullptr) == rung && out.core->awaits_sources(stream);
    });
  };
  const bool elsewhere = some_awaits(false);  // another stream has used the plan, or one of its channels
  if (elsewhere || some_awaits(true)) {
    const auto work = [this, next, elsewhere](device::Lane lane) {
      for (auto& [core, first] : out_) {
        const auto epoch = first + next;
        if (epoch > core->depth() && (elsewhere || core->rung() != nullptr)) core->await_source(lane, epoch);
      }
    };
    issue(stream, work, out_, &SenderCore::acquire_refused);
  }
  check_failures(stream);
}

void PlanCore::start(Stream stream) {
  check_stream(stream);
  if (kernels_drive()) {
    for (const auto& out : out_) check_for_kernels(*out.core);
    return launch(stream, "start", [&] { kernels_->start(stream, ++counts_.starts, capture_ != 0); });
  }
  for (auto& [core, first] : out_) core->check_next();
  for (auto& [core, first] : out_) core->count_for_plan();
  const std::uint64_t start = ++counts_.starts;
  for (auto& [core, first] : out_) core->announce(core->epoch(), core->whole());
  const auto work = [this, start](device::Lane lane) {
    device::as_slice(lane, "wait for credits", [=, this] { await_credits(lane, start); });
    device::as_slice(lane, "start", [=, this] { put_all(lane, start); });
  };
  issue(stream, work, out_, &SenderCore::put_refused);
  check_failures(stream);
}

/// On a GPU's stream in one operation. Elsewhere each put waits for its own credit.
void PlanCore::await_credits(device::Lane lane, std::uint64_t start) {
  if (lane.gpu == nullptr) return;
  for (const auto& [core, first] : out_) core->await_credit(lane, first + start);
}

void PlanCore::put_all(device::Lane lane, std::uint64_t start) {
  for (const auto& [core, first] : out_) {
    const std::uint64_t epoch = first + start;
    core->fail_if_stopped(lane);
    if (lane.gpu == nullptr) core->await_credit(lane, epoch);
    core->report_failure(lane);
    if (!base::trace::on()) [[likely]] {
      fire(lane, *core, epoch, core->whole());
    } else {
      device::trace_slice(lane, "put", core->traced, epoch, core->slot_bytes, base::trace::Arrow::begins,
                          [lane, core = core.get(), epoch] { fire(lane, *core, epoch, core->whole()); });
    }
  }
  for (auto& bell : put_bells_) bell->ring(lane);
}

void PlanCore::wait(Stream stream) {
  check_stream(stream);
  if (kernels_drive()) {
    for (const auto& in : in_) check_for_kernels(*in.core);
    return launch(stream, "wait for all", [=, this] { kernels_->wait(stream, ++counts_.waits, capture_ != 0); });
  }
  for (auto& in : in_) in.core->check_next();
  for (auto& in : in_) in.core->count_for_plan();
  const std::uint64_t wait = ++counts_.waits;
  const auto work = [this, wait](device::Lane lane) {
    device::as_slice(lane, "wait for all", [=, this] {
      for (auto& in : in_) in.core->land(lane, in.first_wait + wait);
    });
  };
  issue(stream, work, in_, &ReceiverCore::wait_refused);
  check_failures(stream);
}

void PlanCore::release(Stream stream) {
  check_stream(stream);
  for (auto& in : in_) in.core->check_driven();
  if (kernels_drive()) {  // they check themselves that there was a wait
    ++counts_.releases;
    return launch(stream, "release all", [=, this] { kernels_->release(stream, capture_ != 0); });
  }
  if (counts_.releases >= counts_.waits) throw misuse("release without a wait");
  const std::uint64_t release = ++counts_.releases;
  for (auto& in : in_) in.core->announce(in.core->begin_release(), {});
  const auto work = [this, release](device::Lane lane) {
    device::as_slice(lane, "release all", [=, this] { release_all(lane, release); });
  };
  if (checks_ == nullptr) return issue(stream, work, in_, &ReceiverCore::release_refused);
  const auto noted = [this, release, work, call = checks_->user.current()](device::Lane lane) {
    note_releases(release, call);
    work(lane);
  };
  issue(stream, noted, in_, &ReceiverCore::release_refused);
}

void PlanCore::note_releases(std::uint64_t release, const runtime::Call& call) {
  for (auto& in : in_) in.core->checks().releases.add(in.first_release + release, call);
}

void PlanCore::release_all(device::Lane lane, std::uint64_t release) {
  for (auto& in : in_) {
    const std::uint64_t epoch = in.first_release + release;
    if (is_fused(in.core->rung())) {
      fire(lane, *in.core, epoch, {});
    } else {
      in.core->give_back(lane, epoch);
    }
  }
  for (auto& bell : credit_bells_) bell->ring(lane);
}

Slice PlanCore::slot(const SenderCore& sender) const {
  const std::size_t place = sender.place_in_plan;
  if (place >= out_.size() || out_[place].core.get() != &sender) throw misuse("the sender is not in this plan");
  return sender.slot(out_[place].first + counts_.starts + 1, stream_.kind());
}

Slice PlanCore::slot(const ReceiverCore& receiver) const {
  const std::size_t place = receiver.place_in_plan;
  if (place >= in_.size() || in_[place].core.get() != &receiver) throw misuse("the receiver is not in this plan");
  const std::uint64_t epoch = in_[place].first_wait + counts_.waits;
  if (epoch == 0) throw misuse("nothing was waited for yet");
  return receiver.checked_slot(receiver.slot(epoch, stream_.kind()), epoch);
}

std::string PlanCore::describe() const {
  std::string text;
  for (const auto& out : out_) text += out.core->describe() + "\n";
  for (const auto& in : in_) text += in.core->describe() + "\n";
  if (!committed_) return text + "not committed";
  if (kernels_drive())
    return text +
           "driven by kernels, since it was captured: they copy, write words and wait for them; what a NIC fires is "
           "armed ahead";
  const bool by_kernels = device::of_gpu(stream_) && device::words_by_kernels();
  std::size_t rung = 0;
  std::size_t bells = put_bells_.size();
  for (const auto& out : out_) {
    if (out.core->rung() == nullptr) continue;
    ++rung;
    bells += is_fused(out.core->rung()) ? 0 : 1;
  }
  return text + "a start: " + std::to_string(out_.size() - rung) + " puts by the stream itself, " +
         std::to_string(rung) + " more behind " + std::to_string(bells) + " doorbells; " +
         (device::of_gpu(stream_) ? "each " + std::to_string(device::OperateArgs::kMost) + " of its words are " : "") +
         "queued as one " + (by_kernels ? "kernel" : "stream operation") +
         (device::of_gpu(stream_) ? ", as are those of a wait for all " : ", as is a wait for all ") +
         std::to_string(in_.size());
}

}  // namespace sluice::detail

namespace sluice {

using detail::usable_here;
using runtime::Verb;
using PlanUse = detail::PlanCore::Use;

namespace {

template <class Core>
Core& core_of(const ChannelHandle& channel) {
  return static_cast<Core&>(usable_here(detail::ChannelAccess::end(channel)));
}
/// The plan that gets the result owns the channel too.
template <class Core>
std::shared_ptr<Core> owned(const ChannelHandle& channel) {
  return {detail::ChannelAccess::end(channel), &core_of<Core>(channel)};
}

}  // namespace

Plan& Plan::add(Sender& sender) {
  usable_here(core_).add(owned<detail::SenderCore>(sender));
  return *this;
}

Plan& Plan::add(Receiver& receiver) {
  usable_here(core_).add(owned<detail::ReceiverCore>(receiver));
  return *this;
}

void Plan::commit(Stream stream, std::optional<Timeout> timeout) {
  const PlanUse use(usable_here(core_), Verb::commit, __builtin_return_address(0));
  core_->commit(stream, timeout);
}
void Plan::acquire(Stream stream) {
  const base::races::Called here;
  const PlanUse use(usable_here(core_), Verb::acquire, __builtin_return_address(0));
  core_->acquire(stream);
}
void Plan::start(Stream stream) {
  const base::races::Called here;
  const PlanUse use(usable_here(core_), Verb::start, __builtin_return_address(0));
  core_->start(stream);
}
void Plan::wait(Stream stream) {
  const base::races::Called here;
  const PlanUse use(usable_here(core_), Verb::wait, __builtin_return_address(0));
  core_->wait(stream);
}
void Plan::release(Stream stream) {
  const base::races::Called here;
  const PlanUse use(usable_here(core_), Verb::release, __builtin_return_address(0));
  core_->release(stream);
}
Slice Plan::slot(const Sender& sender) const { return usable_here(core_).slot(core_of<detail::SenderCore>(sender)); }
Slice Plan::slot(const Receiver& receiver) const {
  return usable_here(core_).slot(core_of<detail::ReceiverCore>(receiver));
}
std::string Plan::describe() const { return usable_here(core_).describe(); }

}  // namespace sluice
