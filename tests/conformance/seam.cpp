// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/seam.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <system_error>

namespace sluice::test {
namespace {

using backends::Key;

/// Words of the board that pass on a key: bytes, process, descriptors, their number; then the bytes themselves.
enum Told : std::size_t { kBytes, kProcess, kCount, kDescriptors, kPayload = kDescriptors + 4 };

std::unique_ptr<backends::Transport> open_transport(const std::string& name) {
  const auto backend = backends::find_backend(name);
  if (!backend || !backend->why_not.empty()) throw std::runtime_error(name + " cannot be used here");
  return backend->open({});
}

void write_key(const Key& key) {
  board().set(kBytes, key.bytes.size());
  board().set(kProcess, static_cast<std::uint64_t>(::getpid()));
  board().set(kCount, key.sent.size());
  for (std::size_t i = 0; i < key.sent.size(); ++i)
    board().set(kDescriptors + i, static_cast<std::uint64_t>(key.sent[i]));
  for (std::size_t at = 0; at < key.bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, key.bytes.data() + at, std::min<std::size_t>(8, key.bytes.size() - at));
    board().set(kPayload + at / 8, word);
  }
}

/// The descriptors are opened once more where their owner has them.
Key read_key() {
  Key key;
  key.bytes.resize(board().word(kBytes).load());
  for (std::size_t at = 0; at < key.bytes.size(); at += 8) {
    const std::uint64_t word = board().word(kPayload + at / 8).load();
    std::memcpy(key.bytes.data() + at, &word, std::min<std::size_t>(8, key.bytes.size() - at));
  }
  const std::string folder = "/proc/" + std::to_string(board().word(kProcess).load()) + "/fd/";
  for (std::size_t i = 0; i < board().word(kCount).load(); ++i) {
    const std::string path = folder + std::to_string(board().word(kDescriptors + i).load());
    key.received.emplace_back(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!key.received.back()) throw std::system_error(errno, std::generic_category(), path);
  }
  return key;
}

}  // namespace

void SeamWatch::fail(Code code, const std::string& what) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = std::string(name(code)) + ": " + what;
  }
  set_failed();
  done_parking.wake();
}

std::string SeamWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

SeamMemory::SeamMemory(const Case& one, std::size_t bytes) {
  if (one.user) {
    users_.resize((bytes + 7) / 8);
    extent_ = {reinterpret_cast<std::byte*>(users_.data()), bytes, nullptr};
  } else {
    allocation_ = device::allocate(bytes, false);
    extent_ = {allocation_.extent().data, bytes, allocation_.extent().segment};
  }
  poison(this->bytes());
}

Seam::Seam(const Context& context, const Case& one)
    : context_(context), transport_(open_transport(one.ground.backend)), engine_(desk_, {}) {
  engine_.add(*transport_);
  const bool first = context.rank() == 0;
  for (Rank rank = 0; rank < context.size(); ++rank) {
    const Key address = tell_all(rank, {transport_->address(), {}, {}});
    if (!transport_->reaches(address.bytes, true)) throw std::runtime_error("out of reach");
    if (first) links_.push_back(transport_->connect(rank, address.bytes, true));
    if (!first && rank == 0) own_ = transport_->connect(rank, address.bytes, true);
  }
  to_first_ = first ? links_.front().get() : own_.get();
  engine_.start();
  while (!all_ready()) {
  }
}

/// Carries the messages of each two links to each other. True once all links are ready.
bool Seam::all_ready() const {
  const auto said_by = [](backends::Link& link) {
    std::vector<backends::Blob> words;
    if (link.paths != nullptr) link.paths->tend(base::Clock::now(), words);
    Key key{{std::byte{link.ready()}}, {}, {}};
    for (const backends::Blob& word : words) {
      key.bytes.push_back(static_cast<std::byte>(word.size()));
      key.bytes.insert(key.bytes.end(), word.begin(), word.end());
    }
    return key;
  };
  const auto hear = [](backends::Link& link, const Key& key) {
    for (auto at = key.bytes.begin() + 1; at != key.bytes.end();) {
      const auto word = at + 1;
      at = word + std::to_integer<int>(*at);
      link.paths->heard({word, at});
    }
  };
  bool ready = true;
  const bool first = context_.rank() == 0;
  for (Rank rank = 0; rank < context_.size(); ++rank) {
    const bool other = context_.rank() == rank;
    backends::Link& link = first ? *links_[static_cast<std::size_t>(rank)] : *to_first_;
    const Key from_first = tell_all(0, first ? said_by(link) : Key());
    if (other) hear(link, from_first);
    ready &= from_first.bytes.front() == std::byte{1};
    if (rank == 0) continue;
    const Key from_other = tell_all(rank, other ? said_by(link) : Key());
    if (first) hear(link, from_other);
    ready &= from_other.bytes.front() == std::byte{1};
  }
  return ready;
}

Key Seam::tell_all(Rank from, const Key& key) const {
  if (context_.rank() == from) write_key(key);
  board().meet(context_);
  Key told = read_key();
  board().meet(context_);
  return told;
}

Key Seam::offered(const device::Extent& memory) {
  Key ours;
  for (Rank rank = 0; rank < context_.size(); ++rank) {
    Key key;
    if (context_.rank() == 0) {
      offers_.push_back(links_.at(static_cast<std::size_t>(rank))->offer(memory, {}));
      key = std::move(offers_.back().key);
    }
    Key told = tell_all(0, key);
    if (rank == context_.rank()) ours = std::move(told);
  }
  link().arrived(ours);
  return ours;
}

Asker::Asker(const Context& context, const Case& one, std::size_t local, std::size_t offered)
    : context_(context), depth_(static_cast<std::uint64_t>(one.depth)), local_(one, local),
      offered_(one, context.rank() == 0 ? offered : 0), seam_(context, one) {
  access_ = seam_.link().access(one.depth, watch_, seam_.offered(offered_.extent()));
  engine_access_ = access_->posted;
  if (engine_access_ != nullptr) seam_.engine().watch(*engine_access_);
  if (one.host) stream_.emplace();
}

Asker::~Asker() {
  stream_.reset();  // first: it uses all of this
  if (engine_access_ != nullptr) seam_.engine().forget(*engine_access_);
}

void Asker::await(device::Lane lane, std::uint64_t epoch) {
  device::wait(lane, {&watch_.done, epoch, &watch_.done_parking, epoch}, watch_, seam_.engine().helper());
}

void Asker::ask(const Asked& asked) {
  const backends::Request request{asked.kind, asked.offset, local().subspan(asked.local.offset, asked.local.bytes),
                                  asked.operand, asked.compare};
  const std::uint64_t epoch = ++last_;
  const Stream stream = stream_ ? Stream::host(*stream_) : Stream::program_order();
  device::in_order(stream, [this, epoch, request](device::Lane lane) {
    if (epoch > depth_) await(lane, epoch - depth_);
    access_->enqueue(lane, epoch, request);
  });
}

void Asker::finish() {
  if (stream_) stream_->synchronize();
  await({}, last_);
}

std::uint64_t Asker::ask_one(const Asked& asked) {
  ask(asked);
  finish();
  std::uint64_t word = 0;
  std::memcpy(&word, local().data() + asked.local.offset, sizeof word);
  return word;
}

void Asker::part() {
  finish();
  board().meet(context_);
}

}  // namespace sluice::test
