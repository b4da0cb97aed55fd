// SPDX-License-Identifier: Apache-2.0
#include "dialects/messages/on_line.hpp"

#include <array>
#include <optional>
#include <utility>

#include "dialects/common/job.hpp"
#include "dialects/messages/codes.hpp"
#include "dialects/messages/gpu_line.hpp"
#include "dialects/messages/host_operation.hpp"
#include "dialects/messages/lane.hpp"

namespace sluice::stream_mpi {
namespace {

constexpr const char* kDropped = "the stream of a message has stopped";

class Starting final : public HostOperation {
 public:
  explicit Starting(std::vector<std::shared_ptr<Transfer>> messages) : messages_(std::move(messages)) {}
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;
  ~Starting() override { give_up(); }

  void start() override {
    for (const auto& message : std::exchange(messages_, {})) message->start();
  }
  bool advance() override { return true; }
  void finish() override {}
  void give_up() noexcept override {
    for (const auto& message : messages_) message->abandon(kDropped);
  }

 private:
  std::vector<std::shared_ptr<Transfer>> messages_;
};

class Waiting final : public HostOperation {
 public:
  Waiting(std::vector<Awaited> messages, Timeout timeout) : messages_(std::move(messages)), timeout_(timeout) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() override { give_up(); }

  void start() override {}
  bool advance() override {
    progress_lanes();
    for (const Awaited& one : messages_)
      if (!one.message->complete()) return false;
    describe_all();
    return true;
  }
  void finish() override {
    if (wait_until(timeout_, [this] { return advance(); })) return;
    abandon("a wait for a message has lasted longer than SLUICE_TIMEOUT");
    (void)advance();
  }
  void give_up() noexcept override { abandon(kDropped); }

 private:
  void abandon(const char* why) {
    for (const Awaited& one : messages_) one.message->abandon(why);
  }
  void describe_all() {
    std::exception_ptr first;
    for (const Awaited& one : std::exchange(messages_, {})) {
      one.message->describe(one.status);
      try {
        one.message->check();
      } catch (...) {
        const std::exception_ptr failure = std::current_exception();
        if (one.status != MPI_STATUS_IGNORE) one.status->MPI_ERROR = class_of(failure);
        if (first == nullptr) first = failure;
      }
    }
    if (first != nullptr) std::rethrow_exception(first);
  }

  std::vector<Awaited> messages_;
  Timeout timeout_;
};

}  // namespace

std::unique_ptr<Line> make_message_line(void* const* variable) {
  const Context context = Job::current()->context;
  std::unique_ptr<Line> line = make_line(context, variable);
  const std::optional<Stream> gpu = line->gpu();
  return gpu ? make_gpu_line(context, *gpu) : std::move(line);
}

void enqueue_start(Line& line, std::vector<std::shared_ptr<Transfer>> messages) {
  const std::shared_ptr<Operation> starting = std::make_shared<Starting>(std::move(messages));
  line.start(std::array{&starting});
}

void enqueue_wait(Line& line, std::vector<Awaited> messages) {
  const std::shared_ptr<Operation> waiting =
      std::make_shared<Waiting>(std::move(messages), Job::current()->context.timeout());
  line.wait_all(std::array{&waiting});
}

}  // namespace sluice::stream_mpi
