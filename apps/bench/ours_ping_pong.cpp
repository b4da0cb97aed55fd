// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/buffers.hpp"
#include "apps/bench/ours.hpp"

#include <memory>
#include <utility>

namespace bench {
namespace {

constexpr long kItemsPerStep = 4;  // put, wait, read, release

// A channel each way between the partners.
class Pair {
 public:
  Pair(const Case& one_case, sluice::Stream stream)
      : bytes_(one_case.bytes), source_(one_case, 1), target_(one_case, one_case.depth),
        out_(one_case.context.sender(one_case.peer, one_case.tag, source_.all(), {.stream = stream})),
        in_(one_case.context.receiver(one_case.peer, one_case.tag, target_.all(),
                                      {.depth = one_case.depth, .stream = stream})) {
    out_.wait_connected();
    in_.wait_connected();
  }

  void put(sluice::Stream stream) { out_.put(stream, 0, bytes_); }
  const std::byte* wait(sluice::Stream stream) { return in_.wait(stream).data(); }
  void release(sluice::Stream stream) { in_.release(stream); }
  std::string describe() const { return out_.describe(); }

 private:
  std::size_t bytes_;
  Slots source_;
  Slots target_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

class InOrder : public Contender {
 public:
  explicit InOrder(const Case& one_case) : case_(one_case), pair_(one_case, {}) {}
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        if (case_.first) pair_.put({});
        use(case_, pair_.wait({}));
        pair_.release({});
        if (!case_.first) pair_.put({});
      }
    });
  }

 private:
  const Case case_;
  Pair pair_;
};

class OnStream : public Contender {
 public:
  explicit OnStream(const Case& one_case)
      : case_(one_case), queue_(make_queue(one_case, kItemsPerStep)), pair_(one_case, queue_->stream()) {}
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    return queue_->drive(case_.drive, count, [this] { step(); });
  }

 private:
  void step() {
    const sluice::Stream stream = queue_->stream();
    if (case_.first) put(stream);
    const std::byte* payload = nullptr;
    queue_->verb(Drive::enqueue_wait, [&] { payload = pair_.wait(stream); });
    if (case_.options.touch) queue_->run([this, payload] { use(case_, payload); });
    queue_->verb(Drive::enqueue_release, [&] { pair_.release(stream); });
    if (!case_.first) put(stream);
  }

  void put(sluice::Stream stream) {
    queue_->verb(Drive::enqueue_put, [&] { pair_.put(stream); });
  }

  const Case case_;
  std::unique_ptr<Queue> queue_;
  Pair pair_;
};

}  // namespace

Ours make_ping_pong(const Case& one_case) {
  if (one_case.drive == Drive::in_order) return described(std::make_unique<InOrder>(one_case));
  return described(std::make_unique<OnStream>(one_case));
}

}  // namespace bench
