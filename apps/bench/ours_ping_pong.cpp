// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/buffers.hpp"
#include "apps/bench/host_queue.hpp"
#include "apps/bench/ours.hpp"

#include <utility>

namespace bench {
namespace {

constexpr long kItemsPerStep = 4;  // put, wait, read, release

// A channel each way between the partners.
class Pair {
 public:
  explicit Pair(const Case& one_case)
      : bytes_(one_case.bytes), source_(one_case, 1), target_(one_case, one_case.depth),
        out_(one_case.context.sender(one_case.peer, one_case.tag, source_.all())),
        in_(one_case.context.receiver(one_case.peer, one_case.tag, target_.all(), {.depth = one_case.depth})) {
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
  explicit InOrder(const Case& one_case) : case_(one_case), pair_(one_case) {}
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

class OnHostStream : public Contender {
 public:
  OnHostStream(const Case& one_case, Drive drive) : case_(one_case), drive_(drive), pair_(one_case) {}
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    if (drive_ == Drive::ahead) return queue_.run_ahead(case_.context, count, [this] { step(); });
    if (drive_ == Drive::enqueue) return queue_.time_enqueue(case_.context, count, [this] { step(); });
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        step();
        case_.context.synchronize(queue_.stream());
      }
    });
  }

 private:
  void step() {
    const sluice::Stream stream = queue_.stream();
    if (case_.first) pair_.put(stream);
    const std::byte* const payload = pair_.wait(stream);
    if (case_.options.touch) queue_.run([this, payload] { use(case_, payload); });
    pair_.release(stream);
    if (!case_.first) pair_.put(stream);
  }

  const Case case_;
  const Drive drive_;
  HostQueue queue_{kItemsPerStep};
  Pair pair_;
};

}  // namespace

Ours make_ping_pong(const Case& one_case, Drive drive) {
  if (drive == Drive::in_order) return described(std::make_unique<InOrder>(one_case));
  return described(std::make_unique<OnHostStream>(one_case, drive));
}

}  // namespace bench
