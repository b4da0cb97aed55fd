// SPDX-License-Identifier: Apache-2.0
// A domain: its random numbers, and the thread that runs the steps of writes when they are due.
#pragma once

#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/chaos/endpoint.hpp"
#include "tests/chaos/keys.hpp"
#include "tests/chaos/settings.hpp"
#include "tests/layer/fabric.hpp"

namespace chaos {

class Counter;
class Region;

class Domain : public layer::Domain {
 public:
  Domain(layer::Fabric& owner, const Settings& set, fid_domain* wrapped, void* context);
  ~Domain() override;

  // The caller holds the lock in all that follows.

  /// A random delay for a step; most delays are short.
  Clock::duration delay();
  /// Runs the steps that are due, and handles the completions of the network below.
  void turn();
  /// Wakes the thread.
  void stir() const;
  /// The network below has completed the step with this context.
  void complete(void* context, int error);
  /// A write has landed in the memory of this key.
  void count(std::uint64_t key);
  void forget(const Counter& counter);

  const Settings settings;
  std::mt19937_64 random;
  std::vector<Endpoint*> endpoints;
  std::vector<Queue*> queues;
  std::vector<Region*> regions;
  Keys keys;

 private:
  void play();
  /// How long the thread may sleep: until a step is due, and only shortly while the network below is busy.
  Clock::duration nap() const;

  bool ending_ = false;
  int stirred_;
  std::thread thread_;
};

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);

}  // namespace chaos
