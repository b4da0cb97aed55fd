// SPDX-License-Identifier: Apache-2.0
// The machine's topology, as hwloc sees it.
#include <hwloc.h>

#include <mutex>

#include "backends/ofi/locality.hpp"
#include "base/log.hpp"

namespace sluice::backends::ofi {
namespace {

int height(hwloc_obj* object) {
  int steps = 0;
  for (; object->parent != nullptr; object = object->parent) ++steps;
  return steps;
}

// Components that look into GPUs would wake the GPUs up, and take seconds.
constexpr const char* kNotNeeded[] = {"cuda", "gl", "levelzero", "nvml", "opencl", "rsmi"};

/// How many steps below the top of the machine their ways part. Buses count: a switch may hold a GPU and its NIC.
int shared(hwloc_obj* one, hwloc_obj* other) {
  int one_height = height(one);
  int other_height = height(other);
  while (one != other) {
    if (one_height >= other_height) {
      one = one->parent;
      --one_height;
    } else {
      other = other->parent;
      --other_height;
    }
  }
  return one_height;
}

hwloc_obj* find(hwloc_topology* tree, const Candidate& device) {
  if (tree == nullptr) return nullptr;
  if (!device.pci.empty()) return hwloc_get_pcidev_by_busidstring(tree, device.pci.c_str());
  hwloc_obj* named = nullptr;
  do {
    named = hwloc_get_next_osdev(tree, named);
  } while (named != nullptr && device.name != named->name);
  return named;
}

}  // namespace

Topology::Topology() {
  hwloc_topology* tree = nullptr;
  if (hwloc_topology_init(&tree) != 0) return;
  std::shared_ptr<hwloc_topology> owned(tree, hwloc_topology_destroy);
  for (const char* const component : kNotNeeded)
    hwloc_topology_set_components(tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  hwloc_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  static std::mutex one_at_a_time;  // hwloc loads libudev, which has unguarded global state
  const std::lock_guard lock(one_at_a_time);
  if (hwloc_topology_load(tree) == 0) {
    tree_ = std::move(owned);
  } else {
    base::log(base::LogLevel::info, "hwloc cannot say where the network devices are");
  }
}

std::optional<Topology::Nearness> Topology::nearness(const Candidate& device, const Standpoint& from) const {
  hwloc_obj* const here = find(tree_.get(), device);
  if (here == nullptr) return std::nullopt;
  auto [to_gpu, to_cores] = Nearness();
  hwloc_obj* const gpu = hwloc_get_pcidev_by_busidstring(tree_.get(), from.gpu.c_str());
  if (gpu != nullptr) to_gpu = shared(here, gpu);
  for (const unsigned core : from.cores) {
    hwloc_obj* const unit = hwloc_get_pu_obj_by_os_index(tree_.get(), core);
    if (unit != nullptr) to_cores += shared(here, unit);
  }
  return Nearness(to_gpu, to_cores);
}

std::optional<unsigned> Topology::numa_node(const Candidate& device) const {
  hwloc_obj* const here = find(tree_.get(), device);
  hwloc_obj* const holder = here == nullptr ? nullptr : hwloc_get_non_io_ancestor_obj(tree_.get(), here);
  if (holder == nullptr || hwloc_bitmap_weight(holder->nodeset) != 1) return std::nullopt;
  return static_cast<unsigned>(hwloc_bitmap_first(holder->nodeset));
}

}  // namespace sluice::backends::ofi
