// SPDX-License-Identifier: Apache-2.0
// A backend without channels on top: for what the seam has and the public interface has not yet.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/access.hpp"
#include "runtime/engine.hpp"
#include "tests/conformance/cases.hpp"

namespace sluice::test {

/// Its failure is what the test looks at.
class SeamWatch final : public device::Watch {
 public:
  void fail(Code code, const std::string& what) noexcept override;
  base::Clock::duration waited(const device::Wait&, base::Clock::duration, Timeout, base::WaitNote&) noexcept override {
    return 60s;
  }

  void shut_it() noexcept { set_shut(); }
  /// The first one as "code: text"; empty: none.
  std::string failure() const;

 private:
  mutable std::mutex mutex_;
  std::string failure_;
};

/// Memory of the case's kind, poisoned.
class SeamMemory {
 public:
  SeamMemory(const Case& one, std::size_t bytes);
  const device::Extent& extent() const { return extent_; }
  std::span<std::byte> bytes() const { return {extent_.data, extent_.bytes}; }

 private:
  device::Allocation allocation_;
  std::vector<std::uint64_t> users_;
  device::Extent extent_;
};

/// One rank's transport, its engine, and a link to rank 0. All ranks do the same with it at the same time.
class Seam {
 public:
  Seam(const Context& context, const Case& one);

  const Context& context() const { return context_; }
  backends::Link& link() { return *to_first_; }
  runtime::Engine& engine() { return engine_; }
  /// Rank 0 offers `memory` to every rank, itself too; the key for this one. Rank 0 keeps the offers.
  backends::Key offered(const device::Extent& memory);

 private:
  /// Sleeps until the engine is woken.
  class Desk final : public runtime::Engine::SocketService {
    int prepare(std::vector<pollfd>&) override { return -1; }
    void serve(std::span<const pollfd>) override {}
  };

  backends::Key tell_all(Rank from, const backends::Key& key) const;
  bool all_ready() const;

  const Context& context_;
  Desk desk_;
  std::unique_ptr<backends::Transport> transport_;
  std::vector<std::unique_ptr<backends::Link>> links_;  // of rank 0: to all
  std::unique_ptr<backends::Link> own_;                 // of the others: to rank 0
  backends::Link* to_first_ = nullptr;
  std::vector<backends::Offer> offers_;
  runtime::Engine engine_;
};

/// A backends::Request whose local memory is a part of the Asker's.
struct Asked {
  backends::Request::Kind kind = backends::Request::Kind::get;
  std::uint64_t offset = 0;
  backends::Range local;
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
};

/// Requests of one rank on the memory of rank 0.
class Asker {
 public:
  /// `local` and `offered`: bytes; `offered` of rank 0.
  Asker(const Context& context, const Case& one, std::size_t local, std::size_t offered);
  ~Asker();

  /// Enqueues it, in the case's order, once fewer than depth are under way.
  void ask(const Asked& asked);
  /// Waits until all requests have completed.
  void finish();
  bool all_over() const { return watch_.done.value.load() >= last_; }
  /// Waits for one request; returns the word at the start of its local part.
  std::uint64_t ask_one(const Asked& asked);
  /// Finishes, and returns when the other ranks have too: none needs our memory any more.
  void part();

  std::span<std::byte> local() const { return local_.bytes(); }
  /// Rank 0's own.
  std::span<std::byte> offered() const { return offered_.bytes(); }
  backends::Link& link() { return seam_.link(); }
  SeamWatch& watch() { return watch_; }
  std::string describe() const { return access_->how; }

 private:
  /// Waits until all epochs up to `epoch` have completed, or the watch has failed.
  void await(device::Lane lane, std::uint64_t epoch);

  const Context& context_;
  std::uint64_t depth_;
  SeamMemory local_;
  SeamMemory offered_;
  Seam seam_;
  SeamWatch watch_;
  std::unique_ptr<backends::Access> access_;
  backends::EngineAccess* engine_access_ = nullptr;
  std::uint64_t last_ = 0;
  std::optional<HostStream> stream_;
};

}  // namespace sluice::test
