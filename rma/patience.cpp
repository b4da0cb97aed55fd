// SPDX-License-Identifier: Apache-2.0
#include "rma/patience.hpp"

#include <algorithm>
#include <thread>

#include "base/words.hpp"
#include "rma/host_call.hpp"

namespace sluice::rma {

void Patrol::check_job() const {
  if (oldest_ != nullptr) static_cast<void>(oldest_->connected());
}

void Patrol::look() {
  check_job();
  if (target_.peer() < 0) {
    next_ = (next_ + 1) % group_.size;
    target_ = group_.words_of(next_);
    looks_ = 0;
    closing_ = false;
  }
  closing_ = closing_ || target_.connected() || ++looks_ == kLooks;
  if (!closing_) return;
  try {
    target_.close(Timeout::zero());
    target_ = {};
  } catch (const Error& error) {
    if (error.code() != Code::timeout) throw;  // else the wait goes on meanwhile
  }
}

namespace {

/// How long a wait sleeps that has lasted for so long: no more than an eighth of it is lost.
base::Clock::duration nap_after(base::Clock::duration lasted) {
  return std::clamp<base::Clock::duration>(lasted / 8, std::chrono::microseconds(50), std::chrono::milliseconds(1));
}

}  // namespace

void Patience::rest() {
  if (yields_ && !limit_.over()) {
    yields_ = rest_.spin_or_yield(base::kYielding);
    if (yields_) return;
    last_look_ = base::Clock::now();
    note_ = base::WaitNote(last_look_);
  }
  nap();
}

void Patience::nap() {
  if (limit_.over()) throw links_.group.error(Code::timeout, what_);
  const auto now = base::Clock::now();
  if (note_.due(now, base::kNotedAfter)) note();
  if (now - last_look_ >= Patrol::kPeriod) {
    last_look_ = now;
    links_.patrol.check_job();
    links_.peers.check_alive(suspect_);
    if (rest_.lasted() >= Patrol::kBegin) links_.patrol.look();
  }
  std::this_thread::sleep_until(std::min(limit_.next(), now + nap_after(rest_.lasted())));
}

void Patience::note() {
  base::WaitRecord record;
  record.lack = base::Lack::step;
  record.verb = "waits";
  record.name = links_.group.name;
  record.text = std::string(what_) + " (rank " + std::to_string(suspect_) + " of the window)";
  const int of_thread = base::rank_of_thread();
  record.rank = of_thread >= 0 ? of_thread : links_.group.rank;
  note_.write(record);
}

}  // namespace sluice::rma
