// SPDX-License-Identifier: Apache-2.0
// A domain: its lock, its dice, and the thread that lets go of what is held back.
#pragma once

#include <rdma/fi_domain.h>

#include <chrono>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/chaos/endpoint.hpp"
#include "tests/chaos/keys.hpp"
#include "tests/chaos/settings.hpp"

namespace chaos {

class Counter;
class Fabric;
class Region;

class Domain : public fid_domain {
 public:
  using Fid = fid_domain;

  Domain(Fabric& owner, const Settings& set, fid_domain* wrapped, void* context);
  ~Domain();
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;

  /// Every call of a program.
  template <class F>
  auto locked(F call) {
    const std::lock_guard lock(mutex_);
    return call();
  }

  // The rest with the lock held.

  /// How long something is held back: mostly for a little while.
  Clock::duration delay();
  /// Does what is due, and takes what has come.
  void turn();
  /// There is something new to wait for.
  void stir() const;
  void ended(void* context, int error);
  /// A write has landed in the memory of this key.
  void count(std::uint64_t key);
  void forget(const Counter& counter);

  Fabric& fabric;
  const Settings settings;
  fid_domain* const inner;
  std::mt19937_64 random;
  std::vector<Endpoint*> endpoints;
  std::vector<Queue*> queues;
  std::vector<Region*> regions;
  Keys keys;

 private:
  void play();
  Clock::duration nap() const;

  std::mutex mutex_;
  bool ending_ = false;
  int stirred_;
  std::thread thread_;
};

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);

}  // namespace chaos
