// SPDX-License-Identifier: Apache-2.0
// Send and receive, and persistent requests.
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/rivals/make_mpi.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/bench/rivals/requests_mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

#include <vector>

namespace bench {
namespace {

constexpr int kMpiTag = 0;
constexpr int kAnswer = 1;

int count_of(const Case& one_case) { return static_cast<int>(one_case.bytes); }

class SendRecvPingPong : public Contender {
 public:
  explicit SendRecvPingPong(const Case& one_case) : case_(one_case), source_(one_case.bytes), target_(one_case.bytes) {}

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        if (case_.first) send();
        receive();
        if (!case_.first) send();
      }
    });
  }

 private:
  void send() { MPI_Send(source_.data(), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, world_.communicator()); }
  void receive() {
    MPI_Recv(target_.data(), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, world_.communicator(), MPI_STATUS_IGNORE);
    use(case_, target_.data());
  }

  const Case case_;
  apps::MpiWorld world_;
  Pages source_;
  Pages target_;
};

class PersistentPingPong : public Contender {
 public:
  explicit PersistentPingPong(const Case& one_case)
      : case_(one_case), source_(one_case.bytes), target_(one_case.bytes) {
    out_.add_send(source_.data(), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, world_.communicator());
    in_.add_receive(target_.data(), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, world_.communicator());
  }

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        in_.start();
        if (case_.first) out_.run();
        in_.wait();
        use(case_, target_.data());
        if (!case_.first) out_.run();
      }
    });
  }

 private:
  const Case case_;
  apps::MpiWorld world_;
  Pages source_;
  Pages target_;
  Requests out_;
  Requests in_;
};

// Common parts of both floods: the slots, which the messages of a window use in turn, and the answer. If there are more
// messages than slots, several are received into the same memory at once, as in benchmarks of MPI, so that all
// contenders need the same caches.
class TwoSidedFlood : public Contender {
 public:
  explicit TwoSidedFlood(const Case& one_case)
      : case_(one_case), slots_(one_case.bytes * static_cast<std::size_t>(one_case.depth)) {}

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        move_window();
        if (case_.first) {
          MPI_Recv(nullptr, 0, MPI_BYTE, case_.peer, kAnswer, communicator(), MPI_STATUS_IGNORE);
        } else {
          for (int message = 0; message < case_.window; ++message) use(case_, slot(message));
          MPI_Send(nullptr, 0, MPI_BYTE, case_.peer, kAnswer, communicator());
        }
      }
    });
  }

 protected:
  virtual void move_window() = 0;

  MPI_Comm communicator() const { return world_.communicator(); }
  std::byte* slot(int message) const {
    return slots_.data() + static_cast<std::size_t>(message % case_.depth) * case_.bytes;
  }

  const Case case_;

 private:
  apps::MpiWorld world_;
  Pages slots_;
};

class SendRecvFlood : public TwoSidedFlood {
 public:
  explicit SendRecvFlood(const Case& one_case)
      : TwoSidedFlood(one_case), requests_(static_cast<std::size_t>(one_case.window)) {}

 private:
  void move_window() override {
    for (int message = 0; message < case_.window; ++message) {
      MPI_Request& request = requests_[static_cast<std::size_t>(message)];
      if (case_.first) {
        MPI_Isend(slot(message), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, communicator(), &request);
      } else {
        MPI_Irecv(slot(message), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, communicator(), &request);
      }
    }
    MPI_Waitall(case_.window, requests_.data(), MPI_STATUSES_IGNORE);
  }

  std::vector<MPI_Request> requests_;
};

class PersistentFlood : public TwoSidedFlood {
 public:
  explicit PersistentFlood(const Case& one_case) : TwoSidedFlood(one_case) {
    for (int message = 0; message < case_.window; ++message) {
      if (case_.first) {
        requests_.add_send(slot(message), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, communicator());
      } else {
        requests_.add_receive(slot(message), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, communicator());
      }
    }
  }

 private:
  void move_window() override { requests_.run(); }

  Requests requests_;
};

class PersistentHalo : public Contender {
 public:
  explicit PersistentHalo(const Case& one_case) : case_(one_case) {
    targets_.reserve(static_cast<std::size_t>(case_.neighbours));
    sources_.reserve(static_cast<std::size_t>(case_.neighbours));
    for (int k = 0; k < case_.neighbours; ++k) {
      const Neighbour ranks = neighbour(case_.context, k);
      requests_.add_receive(targets_.emplace_back(case_.bytes).data(), count_of(case_), MPI_BYTE, ranks.from, k,
                            world_.communicator());
      requests_.add_send(sources_.emplace_back(case_.bytes).data(), count_of(case_), MPI_BYTE, ranks.to, k,
                         world_.communicator());
    }
  }

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        requests_.run();
        for (const Pages& target : targets_) use(case_, target.data());
      }
    });
  }

 private:
  const Case case_;
  apps::MpiWorld world_;
  std::vector<Pages> targets_;
  std::vector<Pages> sources_;
  Requests requests_;
};

class SendRecvOverlap : public Contender {
 public:
  explicit SendRecvOverlap(const Case& one_case) : case_(one_case), source_(one_case.bytes), target_(one_case.bytes) {}

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) step();
    });
  }

 private:
  void step() {
    MPI_Request requests[2];
    MPI_Irecv(target_.data(), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, world_.communicator(), &requests[0]);
    MPI_Isend(source_.data(), count_of(case_), MPI_BYTE, case_.peer, kMpiTag, world_.communicator(), &requests[1]);
    compute(case_.compute_ns);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    use(case_, target_.data());
  }

  const Case case_;
  apps::MpiWorld world_;
  Pages source_;
  Pages target_;
};

}  // namespace

std::unique_ptr<Contender> make_send_recv_ping_pong(const Case& one_case) {
  return std::make_unique<SendRecvPingPong>(one_case);
}
std::unique_ptr<Contender> make_persistent_ping_pong(const Case& one_case) {
  return std::make_unique<PersistentPingPong>(one_case);
}
std::unique_ptr<Contender> make_send_recv_flood(const Case& one_case) {
  return std::make_unique<SendRecvFlood>(one_case);
}
std::unique_ptr<Contender> make_persistent_flood(const Case& one_case) {
  return std::make_unique<PersistentFlood>(one_case);
}

std::unique_ptr<Contender> make_mpi_halo(const Case& one_case) { return std::make_unique<PersistentHalo>(one_case); }
std::unique_ptr<Contender> make_mpi_overlap(const Case& one_case) {
  return std::make_unique<SendRecvOverlap>(one_case);
}

}  // namespace bench
