// SPDX-License-Identifier: Apache-2.0
// One endpoint on one network device, with the memory registered for it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/ofi/address.hpp"
#include "backends/ofi/manner.hpp"
#include "base/races.hpp"

namespace sluice::backends::ofi {

/// Memory registered at one rail.
struct Registration {
  Owned<fid_mr> mr;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool by_offset = false;  ///< remote addresses count from the start of the memory
  bool of_gpu = false;

  bool holds(const std::byte* from, std::size_t length) const noexcept {
    return from >= data && from + length <= data + bytes;
  }
  void* desc() const { return fi_mr_desc(mr.get()); }
  Spot spot(const std::byte* at) const {
    return {by_offset ? static_cast<std::uint64_t>(at - data) : reinterpret_cast<std::uintptr_t>(at),
            fi_mr_key(mr.get())};
  }
};

/// The source of a write.
struct Local {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  void* desc = nullptr;
  bool of_gpu = false;  ///< which the provider cannot inject
};

struct Operation;

/// Posts operations.
class Owner {
 public:
  virtual ~Owner() = default;
  /// The operation has completed; with a `why_not`, it has failed.
  virtual void ended(Operation& operation, const std::string& why_not) = 0;
};

/// One write or read. Its owner keeps it until it has ended.
struct Operation {
  fi_context2 context{};  // first: libfabric hands its address back
  Owner* owner = nullptr;
  std::uint64_t epoch = 0;
  std::uint64_t rider = 0;  // index + 1 of the landing whose credit travels along; 0: none
  std::uint64_t value = 0;  // of a signal that is written itself: the network may read it until the write has ended
  std::size_t lane = 0;     // of a put: by which of its rails; of an access: which of its flights
  bool piece = false;       // of a message, all but the last
  bool posted = false;
  const void* armed = nullptr;  // context of deferred work, of which the queue reports failures alone; null: none
};

enum class Posted : std::uint8_t { busy, under_way, over };

/// A place in a peer's memory, and the endpoint of ours that writes to it.
struct Remote {
  fid_ep* from = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  Spot spot;
};

/// A request under way. libfabric keeps a pointer to its operation.
struct Flight {
  Operation operation;
  std::shared_ptr<Registration> local;  ///< null: it is not under way
  std::size_t bytes = 0;
  std::optional<std::uint64_t> count;  ///< number that is written once the read has completed
};

class Rail {
 public:
  static constexpr std::uint64_t kReadCaps = FI_READ | FI_REMOTE_READ;

  /// @throws std::runtime_error
  /// `triggers`: with deferred work and counted memory, if the device has them. `stage_all`: no memory of the user's
  /// is registered.
  Rail(const fi_info& device, bool triggers, bool stage_all);

  const fi_info& info() const noexcept { return *info_; }
  fid_domain* domain() const noexcept { return domain_.get(); }
  fid_ep* endpoint() const noexcept { return endpoint_.get(); }
  /// It takes deferred work, and counts what lands in a piece of memory.
  bool triggers() const noexcept { return (~info_->caps & kTriggerCaps) == 0; }
  /// It reads the memory of peers.
  bool reads() const noexcept { return (~info_->caps & kReadCaps) == 0; }
  /// Remote addresses count from the start of the registered memory.
  bool by_offset() const noexcept { return (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) == 0; }
  /// Registered memory is bound to an endpoint.
  bool binds_memory() const noexcept { return (info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0; }
  const std::string& device() const noexcept { return device_; }
  /// The network that the device is on; empty: not known.
  std::string network() const { return text(info_->fabric_attr->name); }
  /// The name of an endpoint, for the peers' `add`.
  Blob name(fid_ep* endpoint) const;
  fi_addr_t add(const Blob& name);
  /// The endpoint that writes to one more peer.
  fid_ep* endpoint_to_peer();

  /// The registration that holds the memory, made if there is none. Ends with its last owner.
  /// @throws std::runtime_error
  std::shared_ptr<Registration> registered(const device::Extent& memory);
  /// Like `registered`. Null: the provider does not reach this memory of the user's, so that it is staged.
  std::shared_ptr<Registration> registered_if_reached(const device::Extent& memory);
  /// Operations under way may still use it. It is given to no others from now on, since its memory may be freed.
  void disown(const Registration& registration);
  /// Not yet bound or enabled. @throws std::runtime_error
  Owned<fid_mr> register_memory(const device::Extent& memory, std::uint64_t access, std::uint64_t flags);
  std::size_t largest_message() const noexcept { return info_->ep_attr->max_msg_size; }

  /// Bytes that peers may overwrite: a peer's flush of its writes to us is one more write, to these bytes. They exist
  /// as long as the rail, since a flush may arrive when all landings are closed.
  const Registration& flushes() const noexcept { return *flushes_; }

  /// Ends all operations, if the provider releases registered memory only then.
  void close_endpoints();

  /// `operation` may be posted here, and is matched with failures, until its owner is forgotten.
  void know(Operation& operation, Owner& owner);
  void forget(Owner& owner) { operations_.erase(&owner); }
  /// The end of `operation` is ignored from now on.
  void give_up(Operation& operation);
  /// Writes, with `number` if given. `over`: the source may be overwritten; `under_way`: `operation` will end.
  /// `delivered`: the write completes when it has arrived. @throws std::runtime_error
  Posted write(const Local& from, const Remote& to, std::optional<std::uint64_t> number, bool delivered,
               Operation& operation);
  /// Writes to unused bytes of the peer, and completes once that, and so all before it, has been delivered.
  Posted flush(const Remote& to, Operation& operation) { return write_unused(to, {}, true, operation); }
  /// Like `write`, to unused bytes of the peer.
  Posted write_unused(const Remote& to, std::optional<std::uint64_t> number, bool delivered, Operation& operation) {
    return write({flushes_->data, flushes_->bytes, flushes_->desc()}, to, number, delivered, operation);
  }
  /// @throws std::runtime_error
  Posted read(std::byte* to, std::size_t bytes, void* desc, const Remote& from, Operation& operation);

  /// Ends the operations that have completed, and calls `landed(number)` for the numbers that came with peers' writes.
  template <class Landed>
  void poll(Landed landed);
  int under_way() const noexcept { return under_way_; }

  /// Readable when there may be something to poll for; -1: this provider has no such thing.
  int wait_fd() const noexcept { return wait_fd_; }
  /// Nothing to poll for now: the engine may sleep until `wait_fd` is readable.
  bool may_sleep() const;

 private:
  static constexpr std::size_t kAtOnce = 16;
  void open_queue();
  void end(Operation& operation, const std::string& why_not);
  Owned<fid_ep> open_endpoint() const;
  /// False: the queue is broken.
  bool end_failed();
  /// The queue may report no more completions. Then the probes of each path (paths.cpp) do not end, which ends the
  /// path.
  void tell_of_broken_queue(ssize_t code, const char* what);
  /// Takes the result of a call of this name.
  Posted posted(ssize_t code, const char* what, Operation& operation);

  std::string device_;  // libfabric may answer with another name
  Info info_;
  bool injects_;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_cq> queue_;
  Owned<fid_av> addresses_;
  Owned<fid_ep> endpoint_;  // after what it is bound to, and so closed before
  std::vector<Owned<fid_ep>> endpoints_to_peers_;
  int wait_fd_ = -1;
  int under_way_ = 0;
  bool told_of_broken_queue_ = false;
  std::uint64_t next_key_ = 0;
  std::unordered_map<Owner*, std::vector<Operation*>>
      operations_;  // so that `forget` and `give_up` look at those of one owner
  std::vector<std::weak_ptr<Registration>> registrations_;
  std::vector<std::shared_ptr<Registration>> kept_;  // of segments that live as long as the process
  bool stage_all_;
  std::array<std::byte, 8> flushed_{};
  std::shared_ptr<Registration> flushes_;
};

template <class Landed>
void Rail::poll(Landed landed) {
  fi_cq_data_entry entries[kAtOnce];
  for (;;) {
    const ssize_t count = [&] {
      const base::races::Unseen libfabric;
      return fi_cq_read(queue_.get(), entries, kAtOnce);
    }();
    if (count == -FI_EAVAIL) {
      if (!end_failed()) return;
      continue;
    }
    if (count < 0 && count != -FI_EAGAIN && count != -FI_EINTR) tell_of_broken_queue(count, "fi_cq_read");
    for (ssize_t i = 0; i < count; ++i) {
      if ((entries[i].flags & FI_REMOTE_CQ_DATA) != 0) {
        landed(entries[i].data);
      } else {
        end(*static_cast<Operation*>(entries[i].op_context), {});
      }
    }
    if (count < static_cast<ssize_t>(kAtOnce)) return;
  }
}

}  // namespace sluice::backends::ofi
