// SPDX-License-Identifier: Apache-2.0
#include "dialects/messages/communicators.hpp"

#include <atomic>
#include <mutex>
#include <vector>

#include "dialects/common/outcome.hpp"

namespace sluice::stream_mpi {
namespace {

// Numbers of predefined communicators. Others have numbers from 2^32 on.
constexpr std::uint64_t kWorld = 0;
constexpr std::uint64_t kSelf = 1;
static_assert(sizeof(void*) == sizeof(std::uint64_t), "a number is the value of an attribute");

struct AtFree {
  std::mutex mutex;
  std::vector<void (*)(std::uint64_t number)> all;
};

AtFree& works_at_free() {
  static AtFree& made = *new AtFree;
  return made;
}

extern "C" int sluice_stream_mpi_drop_number(MPI_Comm, int, void* number, void*) {
  const std::lock_guard lock(works_at_free().mutex);
  for (const auto work : works_at_free().all) work(reinterpret_cast<std::uint64_t>(number));
  return MPI_SUCCESS;
}

/// Copies of a communicator do not take its number with them.
int number_key() {
  static const int made = [] {
    int key = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &sluice_stream_mpi_drop_number, &key, nullptr);
    return key;
  }();
  return made;
}

std::uint64_t new_number() {
  static std::atomic<std::uint32_t> count = 0;
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return (static_cast<std::uint64_t>(rank) + 1) << 32 | count++;
}

bool is_inter(MPI_Comm comm) {
  int inter = 0;
  PMPI_Comm_test_inter(comm, &inter);
  return inter != 0;
}

}  // namespace

void number_communicator(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL || is_inter(comm)) return;
  std::uint64_t number = 0;
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  if (rank == 0) number = new_number();
  if (PMPI_Bcast(&number, 1, MPI_UINT64_T, 0, comm) == MPI_SUCCESS)
    PMPI_Comm_set_attr(comm, number_key(), reinterpret_cast<void*>(number));
}

std::uint64_t number_of(MPI_Comm comm) {
  if (comm == MPI_COMM_WORLD) return kWorld;
  if (comm == MPI_COMM_SELF) return kSelf;
  if (is_inter(comm)) throw Refused(kUnsupported, "an intercommunicator");
  void* number = nullptr;
  int found = 0;
  PMPI_Comm_get_attr(comm, number_key(), static_cast<void*>(&number), &found);
  if (found == 0)
    throw Refused(kUnsupported,
                  "a communicator of MPI_Comm_idup, or of another function that libsluice_mpis does not "
                  "stand before: make it by MPI_Comm_dup");
  return reinterpret_cast<std::uint64_t>(number);
}

void at_free(void (*work)(std::uint64_t number)) {
  const std::lock_guard lock(works_at_free().mutex);
  works_at_free().all.push_back(work);
}

}  // namespace sluice::stream_mpi
