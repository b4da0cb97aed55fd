// SPDX-License-Identifier: Apache-2.0
// A rank for tests/links.py. What a test wants of its ranks it says by the number in a file that all of them map, the
// phase; what they see they tell line by line.
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
constexpr int kDepth = 4;

/// What a test is run with: the words of the command line after its name.
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

void sends(Context& context, Rank peer, const Wish& wish) {
  Order order(wish);
  const Stream stream = order.stream();
  const Memory memory = context.allocate(kDepth * wish.bytes);
  Sender sender = context.sender(peer, kTag, memory.all(), {.depth = kDepth});
  sender.wait_connected();
  say(rank_text(context.rank()) + " sends: " + sender.describe());
  for (std::uint64_t phase = 0; phase != kEnd;) {
    phase = wish.phase->load();
    for (int i = 0; i < kDepth; ++i) {
      const test::Stamp stamp{context.rank(), kTag, sender.epoch() + 1};
      order.run([slot = sender.acquire(stream), phase, stamp] { write(slot, phase, stamp); });
      sender.put(stream);
    }
    sender.drain();
    std::this_thread::sleep_for(1ms);  // leaves the cores to the other ranks
  }
}

void hears(Context& context, Rank peer, const Wish& wish) {
  Order order(wish);
  const Stream stream = order.stream();
  const Memory memory = context.allocate(kDepth * wish.bytes);
  Receiver receiver = context.receiver(peer, kTag, memory.all(), {.depth = kDepth});
  std::string wrong;
  for (std::uint64_t phase = 0, heard = 0; phase != kEnd;) {
    const std::uint64_t before = phase;
    for (int i = 0; i < kDepth; ++i) {
      const test::Stamp stamp{peer, kTag, ++heard};
      order.run([slot = receiver.wait(stream), stamp, &phase, &wrong] { phase = read(slot, stamp, wrong); });
    }
    order.synchronize();
    for (int i = 0; i < kDepth; ++i) receiver.release(stream);  // throws if a wait was ended by a failure
    if (!wrong.empty()) throw std::runtime_error(wrong);
    if (phase != before)
      say(rank_text(context.rank()) + " hears " + rank_text(peer) + " in phase " + std::to_string(phase));
  }
}

/// Every rank talks to every other until the last phase, or until it has lost it.
void talks(Context& context, const Wish& wish) {
  say(rank_text(context.rank()) + " is process " + std::to_string(::getpid()));
  std::atomic<bool> wrong = false;
  const auto until_lost = [&](auto flow, const char* what, Rank peer) {
    try {
      flow(context, peer, wish);
    } catch (const Error& error) {
      say(rank_text(context.rank()) + what + rank_text(peer) + " no more: " + name(error.code()) + ": " + error.what());
    } catch (const std::exception& error) {
      say(rank_text(context.rank()) + what + rank_text(peer) + " wrong: " + error.what());
      wrong = true;
    }
  };
  std::vector<std::jthread> flows;
  for (Rank peer = 0; peer < context.size(); ++peer) {
    if (peer == context.rank()) continue;
    flows.emplace_back(until_lost, sends, " reaches ", peer);
    flows.emplace_back(until_lost, hears, " hears ", peer);
  }
  flows.clear();
  say(rank_text(context.rank()) + " is through");
  if (wrong) throw std::runtime_error("wrong data");
}

const std::map<std::string_view, void (*)(Context&, const Wish&)> kBodies = {{"talk", talks}};

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
    std::fputs("usage: links_rank talk FILE inline|host BYTES\n", stderr);
    return 2;
  }
  const Wish wish{map_phase(argv[2]), std::string_view(argv[3]) == "host", std::strtoull(argv[4], nullptr, 10)};
  return sluice::run(argc, argv, [&](Context& context) { body->second(context, wish); });
}
