// SPDX-License-Identifier: Apache-2.0
// Send and receive, and persistent requests.
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/rivals/make_mpi.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/bench/rivals/requests_mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

#include <array>
#include <vector>

namespace bench {
namespace {

constexpr int kMpiTag = 0;
constexpr int kAnswerTag = 1;

int count_of(const Workload& workload) { return static_cast<int>(workload.bytes); }

class SendRecvPingPong : public Contender {
 public:
  explicit SendRecvPingPong(const Workload& workload)
      : workload_(workload), source_(workload.bytes), target_(workload.bytes) {}

  double run(long count) override {
    return timed_ping_pong(
        workload_, count, [this] { send(); }, [this] { receive(); });
  }

 private:
  void send() {
    compute(workload_, source_.data());
    MPI_Send(source_.data(), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, world_.communicator());
  }
  void receive() {
    MPI_Recv(target_.data(), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, world_.communicator(),
             MPI_STATUS_IGNORE);
    touch(workload_, target_.data());
  }

  const Workload workload_;
  apps::MpiWorld world_;
  Pages source_;
  Pages target_;
};

class PersistentPingPong : public Contender {
 public:
  explicit PersistentPingPong(const Workload& workload)
      : workload_(workload), source_(workload.bytes), target_(workload.bytes) {
    out_.add_send(source_.data(), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, world_.communicator());
    in_.add_receive(target_.data(), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, world_.communicator());
  }

  double run(long count) override {
    return timed_steps(count, [this] {
      in_.start();
      if (workload_.first) send();
      in_.wait();
      touch(workload_, target_.data());
      if (!workload_.first) send();
    });
  }

 private:
  void send() {
    compute(workload_, source_.data());
    out_.run();
  }

  const Workload workload_;
  apps::MpiWorld world_;
  Pages source_;
  Pages target_;
  Requests out_;
  Requests in_;
};

// The common part of both floods: the slots, which the messages of a window use in turn, and the answer. If a window
// has more messages than there are slots, several messages are received into the same memory at once, as in benchmarks
// of MPI: so every contender needs the same amount of cache.
class TwoSidedFlood : public Contender {
 public:
  explicit TwoSidedFlood(const Workload& workload)
      : workload_(workload), slots_(workload.bytes * static_cast<std::size_t>(workload.depth)) {}

  double run(long count) override {
    return timed_steps(count, [this] {
      move_window();
      if (workload_.first) {
        MPI_Recv(nullptr, 0, MPI_BYTE, workload_.peer, kAnswerTag, communicator(), MPI_STATUS_IGNORE);
      } else {
        for (int message = 0; message < workload_.window; ++message) touch(workload_, slot(message));
        MPI_Send(nullptr, 0, MPI_BYTE, workload_.peer, kAnswerTag, communicator());
      }
    });
  }

 protected:
  virtual void move_window() = 0;

  MPI_Comm communicator() const { return world_.communicator(); }
  std::byte* slot(int message) const {
    return slots_.data() + static_cast<std::size_t>(message % workload_.depth) * workload_.bytes;
  }

  const Workload workload_;

 private:
  apps::MpiWorld world_;
  Pages slots_;
};

class SendRecvFlood : public TwoSidedFlood {
 public:
  explicit SendRecvFlood(const Workload& workload)
      : TwoSidedFlood(workload), requests_(static_cast<std::size_t>(workload.window)) {}

 private:
  void move_window() override {
    for (int message = 0; message < workload_.window; ++message) {
      MPI_Request& request = requests_[static_cast<std::size_t>(message)];
      if (workload_.first) {
        MPI_Isend(slot(message), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, communicator(), &request);
      } else {
        MPI_Irecv(slot(message), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, communicator(), &request);
      }
    }
    MPI_Waitall(workload_.window, requests_.data(), MPI_STATUSES_IGNORE);
  }

  std::vector<MPI_Request> requests_;
};

class PersistentFlood : public TwoSidedFlood {
 public:
  explicit PersistentFlood(const Workload& workload) : TwoSidedFlood(workload) {
    for (int message = 0; message < workload_.window; ++message) {
      if (workload_.first) {
        requests_.add_send(slot(message), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, communicator());
      } else {
        requests_.add_receive(slot(message), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, communicator());
      }
    }
  }

 private:
  void move_window() override { requests_.run(); }

  Requests requests_;
};

class PersistentHalo : public Contender {
 public:
  explicit PersistentHalo(const Workload& workload) : workload_(workload) {
    targets_.reserve(static_cast<std::size_t>(workload_.neighbours));
    sources_.reserve(static_cast<std::size_t>(workload_.neighbours));
    for (int k = 0; k < workload_.neighbours; ++k) {
      const Neighbour ranks = neighbour(workload_.context, k);
      requests_.add_receive(targets_.emplace_back(workload_.bytes).data(), count_of(workload_), MPI_BYTE, ranks.from, k,
                            world_.communicator());
      requests_.add_send(sources_.emplace_back(workload_.bytes).data(), count_of(workload_), MPI_BYTE, ranks.to, k,
                         world_.communicator());
    }
  }

  double run(long count) override {
    return timed_steps(count, [this] {
      requests_.run();
      for (const Pages& target : targets_) touch(workload_, target.data());
    });
  }

 private:
  const Workload workload_;
  apps::MpiWorld world_;
  std::vector<Pages> targets_;
  std::vector<Pages> sources_;
  Requests requests_;
};

class SendRecvRing : public Contender {
 public:
  explicit SendRecvRing(const Workload& workload)
      : workload_(workload), ranks_(neighbour(workload.context, 0)), source_(workload.bytes) {
    for (int slot = 0; slot < workload_.depth; ++slot) slots_.emplace_back(workload_.bytes);
  }

  double run(long count) override {
    return timed([this, count] {
      for (long i = 0; i < count; ++i) step(slots_[static_cast<std::size_t>(i % workload_.depth)]);
      for (Slot& slot : slots_) finish(slot);
    });
  }

 private:
  struct Slot {
    explicit Slot(std::size_t bytes) : target(bytes) {}
    Pages target;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };

  void step(Slot& slot) {
    finish(slot);
    MPI_Irecv(slot.target.data(), count_of(workload_), MPI_BYTE, ranks_.from, kMpiTag, world_.communicator(),
              &slot.requests[0]);
    MPI_Isend(source_.data(), count_of(workload_), MPI_BYTE, ranks_.to, kMpiTag, world_.communicator(),
              &slot.requests[1]);
  }
  void finish(Slot& slot) {
    if (slot.requests[0] == MPI_REQUEST_NULL) return;
    MPI_Waitall(2, slot.requests.data(), MPI_STATUSES_IGNORE);
    touch(workload_, slot.target.data());
  }

  const Workload workload_;
  const Neighbour ranks_;
  apps::MpiWorld world_;
  Pages source_;
  std::vector<Slot> slots_;
};

class SendRecvOverlap : public Contender {
 public:
  explicit SendRecvOverlap(const Workload& workload)
      : workload_(workload), source_(workload.bytes), target_(workload.bytes) {}

  double run(long count) override {
    return timed_steps(count, [this] { step(); });
  }

 private:
  void step() {
    MPI_Request requests[2];
    MPI_Irecv(target_.data(), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, world_.communicator(),
              &requests[0]);
    MPI_Isend(source_.data(), count_of(workload_), MPI_BYTE, workload_.peer, kMpiTag, world_.communicator(),
              &requests[1]);
    compute(workload_.compute_ns);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    touch(workload_, target_.data());
  }

  const Workload workload_;
  apps::MpiWorld world_;
  Pages source_;
  Pages target_;
};

}  // namespace

std::unique_ptr<Contender> make_send_recv_ping_pong(const Workload& workload) {
  return std::make_unique<SendRecvPingPong>(workload);
}
std::unique_ptr<Contender> make_persistent_ping_pong(const Workload& workload) {
  return std::make_unique<PersistentPingPong>(workload);
}
std::unique_ptr<Contender> make_send_recv_flood(const Workload& workload) {
  return std::make_unique<SendRecvFlood>(workload);
}
std::unique_ptr<Contender> make_persistent_flood(const Workload& workload) {
  return std::make_unique<PersistentFlood>(workload);
}

std::unique_ptr<Contender> make_mpi_halo(const Workload& workload) {
  return std::make_unique<PersistentHalo>(workload);
}
std::unique_ptr<Contender> make_mpi_ring(const Workload& workload) { return std::make_unique<SendRecvRing>(workload); }
std::unique_ptr<Contender> make_mpi_overlap(const Workload& workload) {
  return std::make_unique<SendRecvOverlap>(workload);
}

}  // namespace bench
