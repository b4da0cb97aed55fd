// SPDX-License-Identifier: Apache-2.0
// A rank for tests/links.py. A test controls its ranks by a number in a file that all of them map, the
// phase; the ranks print a line for each event.
#include <sluice/sluice.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "tests/conformance/payload.hpp"

namespace {

using namespace std::chrono_literals;
using namespace sluice;

constexpr std::uint64_t kEnd = 1'000;  // the last phase
constexpr Tag kTag = 7;
constexpr Tag kBroken = 8;  // its receiver ends by an exception in phase kTurn
constexpr Tag kLarge = 9;   // one large slot is sent in phase kTurn
constexpr std::uint64_t kTurn = 2;
constexpr std::size_t kLargeBytes = std::size_t{16} << 20;
constexpr int kSmallOnes = 4;  // more than there are rails
constexpr int kDepth = 4;

/// The parameters of a test: the words of the command line after its name.
struct Wish {
  const std::atomic<std::uint64_t>* phase = nullptr;
  bool host = false;  ///< a HostStream; else program order
  std::size_t bytes = 0;
};

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) std::abort();
}

std::string rank_text(Rank rank) { return "rank " + std::to_string(rank); }

std::string what(const Context& context, const char* does, Rank peer, Tag tag) {
  return rank_text(context.rank()) + does + rank_text(peer) + " on tag " + std::to_string(tag);
}

/// A stream of the kind that is wished for.
class Order {
 public:
  explicit Order(const Wish& wish) {
    if (wish.host) host_.emplace();
  }
  Stream stream() { return host_ ? Stream::host(*host_) : Stream::program_order(); }
  template <class F>
  void run(F work) {
    if (host_) return host_->run(std::move(work));
    work();
  }
  void synchronize() {
    if (host_) host_->synchronize();
  }

 private:
  std::optional<HostStream> host_;
};

/// Every byte tells of the epoch; but the first word is the phase in which it was sent.
void write(const Slice& slot, std::uint64_t phase, const test::Stamp& stamp) {
  const std::span<std::byte> bytes(slot.data(), slot.bytes());
  std::memcpy(bytes.data(), &phase, sizeof phase);
  test::fill(bytes.subspan(sizeof phase), stamp);
}

/// Returns the phase.
std::uint64_t read(const Slice& slot, const test::Stamp& stamp, std::string& wrong) {
  const std::span<std::byte> bytes(slot.data(), slot.bytes());
  std::uint64_t phase = 0;
  std::memcpy(&phase, bytes.data(), sizeof phase);
  if (wrong.empty()) wrong = test::difference(bytes.subspan(sizeof phase), stamp);
  test::poison(bytes);
  return phase;
}

void sends(Context& context, Rank peer, Tag tag, const Wish& wish) {
  Order order(wish);
  const Stream stream = order.stream();
  const Memory memory = context.allocate(kDepth * wish.bytes);
  Sender sender = context.sender(peer, tag, memory.all(), {.depth = kDepth});
  sender.wait_connected();
  say(rank_text(context.rank()) + " sends: " + sender.describe());
  while (wish.phase->load() == 0) std::this_thread::sleep_for(1ms);
  for (std::uint64_t phase = 0; phase != kEnd;) {
    phase = wish.phase->load();
    for (int i = 0; i < kDepth; ++i) {
      const test::Stamp stamp{context.rank(), tag, sender.epoch() + 1};
      order.run([slot = sender.acquire(stream), phase, stamp] { write(slot, phase, stamp); });
      sender.put(stream);
    }
    sender.drain();
    std::this_thread::sleep_for(1ms);  // leaves the cores to the other ranks
  }
}

struct OnPurpose {};

void hears(Context& context, Rank peer, Tag tag, const Wish& wish) {
  Order order(wish);
  const Stream stream = order.stream();
  const Memory memory = context.allocate(kDepth * wish.bytes);
  Receiver receiver = context.receiver(peer, tag, memory.all(), {.depth = kDepth});
  std::string wrong;
  for (std::uint64_t phase = 0, heard = 0; phase != kEnd;) {
    const std::uint64_t before = phase;
    for (int i = 0; i < kDepth; ++i) {
      const test::Stamp stamp{peer, tag, ++heard};
      order.run([slot = receiver.wait(stream), stamp, &phase, &wrong] { phase = read(slot, stamp, wrong); });
    }
    order.synchronize();
    for (int i = 0; i < kDepth; ++i) receiver.release(stream);  // throws if a wait was ended by a failure
    if (!wrong.empty()) throw std::runtime_error(wrong);
    if (tag == kBroken && phase >= kTurn) throw OnPurpose();
    if (phase != before) say(what(context, " hears ", peer, tag) + " in phase " + std::to_string(phase));
  }
}

void sends_large(Context& context, Rank peer, Tag tag, const Wish& wish) {
  const Memory memory = context.allocate(kLargeBytes);
  Sender sender = context.sender(peer, tag, memory.all());
  while (wish.phase->load() < kTurn) std::this_thread::sleep_for(1ms);
  write(sender.acquire(Stream::program_order()), kTurn, {context.rank(), tag, 1});
  sender.put(Stream::program_order());
  say(what(context, " has put for ", peer, tag) + ": " + sender.describe());
}

void hears_large(Context& context, Rank peer, Tag tag, const Wish&) {
  const Memory memory = context.allocate(kLargeBytes);
  Receiver receiver = context.receiver(peer, tag, memory.all());
  std::string wrong;
  read(receiver.wait(Stream::program_order()), {peer, tag, 1}, wrong);
  if (!wrong.empty()) throw std::runtime_error(wrong);
  say(what(context, " has all of ", peer, tag));
}

/// The directions in which a rank talks, each with a thread of its own, until the last phase or until one is lost.
class Flows {
 public:
  Flows(Context& context, const Wish& wish) : context_(context), wish_(wish) {
    say(rank_text(context.rank()) + " is process " + std::to_string(::getpid()));
  }
  using Flow = void(Context&, Rank, Tag, const Wish&);

  void start(Flow flow, Rank peer, Tag tag) {
    threads_.emplace_back([this, flow, peer, tag] { run(flow, peer, tag); });
  }
  /// @throws std::runtime_error if data was wrong.
  void join() {
    threads_.clear();
    say(rank_text(context_.rank()) + " is through");
    if (wrong_) throw std::runtime_error("wrong data");
  }

 private:
  void run(Flow flow, Rank peer, Tag tag) {
    const std::string text = what(context_, flow == sends ? " reaches " : " hears ", peer, tag);
    try {
      flow(context_, peer, tag, wish_);
    } catch (const Error& error) {
      say(text + " no more: " + error.what());
    } catch (const std::exception& error) {
      say(text + " wrong: " + error.what());
      wrong_ = true;
    } catch (const OnPurpose&) {
      say(text + " breaks");
    }
  }

  Context& context_;
  const Wish& wish_;
  std::atomic<bool> wrong_ = false;
  std::vector<std::jthread> threads_;
};

void start_with_all(Flows& flows, const Context& context) {
  for (Rank peer = 0; peer < context.size(); ++peer) {
    if (peer == context.rank()) continue;
    flows.start(sends, peer, kTag);
    flows.start(hears, peer, kTag);
  }
}

/// Every rank talks to every other.
void talks(Context& context, const Wish& wish) {
  Flows flows(context, wish);
  start_with_all(flows, context);
  flows.join();
}

/// And one channel more, from the first rank to the last, breaks at its receiver.
void breaks(Context& context, const Wish& wish) {
  Flows flows(context, wish);
  start_with_all(flows, context);
  if (context.rank() == 0) flows.start(sends, context.size() - 1, kBroken);
  if (context.rank() == context.size() - 1) flows.start(hears, 0, kBroken);
  flows.join();
}

/// Small slots on many channels, and one large slot, from the first rank to the last.
void overtakes(Context& context, const Wish& wish) {
  Flows flows(context, wish);
  const Rank last = context.size() - 1;
  for (Tag tag = kTag - kSmallOnes; tag < kTag; ++tag)
    context.rank() == 0 ? flows.start(sends, last, tag) : flows.start(hears, 0, tag);
  context.rank() == 0 ? flows.start(sends_large, last, kLarge) : flows.start(hears_large, 0, kLarge);
  flows.join();
}

const std::map<std::string_view, void (*)(Context&, const Wish&)> kBodies = {
    {"talk", talks}, {"break", breaks}, {"overtake", overtakes}};

const std::atomic<std::uint64_t>* map_phase(const char* file) {
  const base::Fd word(::open(file, O_RDONLY | O_CLOEXEC));
  void* const at = word ? ::mmap(nullptr, sizeof(std::uint64_t), PROT_READ, MAP_SHARED, word.get(), 0) : MAP_FAILED;
  if (at == MAP_FAILED) throw std::runtime_error(std::string("cannot map ") + file);
  return static_cast<const std::atomic<std::uint64_t>*>(at);
}

}  // namespace

int main(int argc, char** argv) {
  const auto body = argc == 5 ? kBodies.find(argv[1]) : kBodies.end();
  if (body == kBodies.end()) {
    std::fputs("usage: links_rank talk|break|overtake FILE inline|host BYTES\n", stderr);
    return 2;
  }
  const Wish wish{map_phase(argv[2]), std::string_view(argv[3]) == "host", std::strtoull(argv[4], nullptr, 10)};
  return sluice::run(argc, argv, [&](Context& context) { body->second(context, wish); });
}
