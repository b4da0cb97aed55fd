// SPDX-License-Identifier: Apache-2.0
// A domain: the trigger list of its counters, and the thread that plays the NIC.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emucxi/settings.hpp"
#include "tests/emucxi/work.hpp"
#include "tests/layer/fabric.hpp"

namespace emucxi {

class Region;

class Domain : public layer::Domain {
 public:
  Domain(layer::Fabric& owner, const fi_info& info, const Settings& set, fid_domain* wrapped, void* context);
  ~Domain() override;

  // The caller holds the lock in all that follows but `flush`.

  /// FI_QUEUE_WORK.
  int queue(const fi_deferred_work& asked);
  /// FI_FLUSH_WORK. Sleeps without the lock.
  void flush();
  /// Makes the work ready whose threshold `counter` has reached.
  void fire(Counter& counter);

  /// False while ready work waits for room in the network.
  bool network_free() const { return ready_.empty(); }
  void begin(std::unique_ptr<Transfer> transfer);
  void finish(std::unique_ptr<Transfer> transfer, int error);

  void forget(Counter& counter);
  void forget(Endpoint& endpoint);
  /// Wakes the thread.
  void stir();

  const Settings settings;
  const bool provider_keys;
  const std::uint32_t traffic_class;

  std::list<Counter*> counters;
  std::list<Region*> regions;
  std::list<Endpoint*> endpoints;
  std::set<std::uint64_t> keys;
  std::uint64_t keys_given = 0;

 private:
  int admit(Work& work);
  void arm(Work work);
  /// Runs the work that is ready.
  void after_call() override;
  /// False: the network is full.
  bool run(Work& work);
  bool fails_now() const;
  /// Cancels the waiting work for which `dropped` is true, without completions, as cxi does.
  template <class Dropped>
  void drop(Dropped dropped);

  /// Looks for work everywhere, once. False: there was none.
  bool turn();
  /// True if there may be work that no call of `stir` announces.
  bool must_poll() const;
  void play();

  std::condition_variable stirred_;
  bool stir_ = false;
  bool ending_ = false;
  std::size_t entries_in_use_ = 0;
  std::uint64_t begun_ = 0;  // data operations
  std::deque<Work> ready_;   // has fired, in this order, and has not begun
  std::vector<Work> lost_;   // found no entry free, and never fires
  std::thread nic_;
};

/// Gives a domain its tables of calls.
void set_domain_ops(Domain& domain);

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);

}  // namespace emucxi
