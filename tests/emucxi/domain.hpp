// SPDX-License-Identifier: Apache-2.0
// A domain: the trigger list of its counters, and the thread that plays the NIC.
#pragma once

#include <rdma/fi_domain.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emucxi/settings.hpp"
#include "tests/emucxi/work.hpp"

namespace emucxi {

class Fabric;
class Region;

class Domain : public fid_domain {
 public:
  using Fid = fid_domain;

  Domain(Fabric& owner, const fi_info& info, const Settings& set, fid_domain* wrapped, void* context);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  /// Every call of a program: `call` runs with the lock held, then what it has triggered.
  template <class F>
  auto locked(F call) {
    const std::lock_guard lock(mutex_);
    const auto result = call();
    run_ready();
    return result;
  }

  // The rest with the lock held, but `flush`.

  /// FI_QUEUE_WORK.
  int queue(const fi_deferred_work& asked);
  /// FI_FLUSH_WORK. Takes its time, without the lock.
  void flush();
  /// `counter` has grown: what it has reached is ready to run.
  void fire(Counter& counter);

  /// Whether nothing that was ready earlier waits for room in the network.
  bool network_free() const { return ready_.empty(); }
  void begin(std::unique_ptr<Transfer> transfer);
  void finish(std::unique_ptr<Transfer> transfer, int error);

  void forget(Counter& counter);
  void forget(Endpoint& endpoint);
  /// There is something to do, or to look at: the thread is not to sleep.
  void stir();
  bool in_use() const { return others > 0 || !counters.empty() || !regions.empty() || !endpoints.empty(); }

  Fabric& fabric;
  const Settings settings;
  const bool provider_keys;
  const std::uint32_t traffic_class;
  fid_domain* const inner;
  fi_info& inner_info;

  std::list<Counter*> counters;
  std::list<Region*> regions;
  std::list<Endpoint*> endpoints;
  int others = 0;  // queues and tables of addresses
  std::set<std::uint64_t> keys;
  std::uint64_t keys_given = 0;

 private:
  int admit(Work& work);
  void arm(Work work);
  void run_ready();
  bool run(Work& work);
  bool fails_now() const;
  template <class Dropped>
  void drop(Dropped dropped);

  bool turn();
  bool must_poll() const;
  void play();

  std::mutex mutex_;
  std::condition_variable stirred_;
  bool stir_ = false;
  bool ending_ = false;
  std::size_t entries_in_use_ = 0;
  std::uint64_t begun_ = 0;  // data operations
  std::deque<Work> ready_;   // has fired, in this order, and is not begun yet
  std::vector<Work> lost_;   // for want of an entry: never fires
  std::thread nic_;
};

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);

}  // namespace emucxi
