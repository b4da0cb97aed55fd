// SPDX-License-Identifier: Apache-2.0
#include "base/process.hpp"

#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <string_view>

#include "base/fork.hpp"
#include "base/text.hpp"

namespace sluice::base {

namespace {

struct Token {
  std::uint64_t value = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32) | random();
  }();
};
OnePerProcess<Token> g_token;

/// Returns a name for the name space of process numbers: " BOOT NUMBER ". Empty if the system hides it.
std::optional<std::string> reach_of_numbers() {
  const std::string boot = this_host().boot.data();
  struct stat numbers {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &numbers) != 0) return std::nullopt;
  return ' ' + boot + ' ' + std::to_string(numbers.st_ino) + ' ';
}

constexpr int kTokenDigits = 16;

}  // namespace

const std::uint64_t& process_token() { return g_token->value; }

bool first_run_in_process() {
  static constexpr const char* kVariable = "SLUICE_RUN_IN";
  // Copies of the library share only the environment. The kernel gives each executed program 16 random bytes, which
  // differ from those of the program that started it. The variable shows only their hash.
  const auto* const random = reinterpret_cast<const char*>(::getauxval(AT_RANDOM));
  const std::string mark = std::to_string(hash(random == nullptr ? "" : std::string_view(random, 16)));
  const char* const seen = std::getenv(kVariable);
  if (seen != nullptr && seen == mark) return false;
  ::setenv(kVariable, mark.c_str(), 1);
  return true;
}

Host this_host() {
  Host host;
  struct stat network {};
  const bool known = std::ifstream("/proc/sys/kernel/random/boot_id").read(host.boot.data(), 36).gcount() == 36 &&
                     ::stat("/proc/self/ns/net", &network) == 0;
  return known ? Host{host.boot, network.st_ino} : Host{{}, process_token()};
}

std::string process_name() {
  return std::to_string(::getpid()) + reach_of_numbers().value_or(" unknown ") +
         hexadecimal(process_token(), kTokenDigits);
}

bool has_ended(const std::string& process_name) {
  const auto reach = reach_of_numbers();
  const auto at = reach ? process_name.find(*reach) : std::string::npos;
  // A part of the name may be missing: its process may have died while it wrote the name.
  if (at == std::string::npos || process_name.size() != at + reach->size() + kTokenDigits) return false;
  return ::kill(std::atoi(process_name.c_str()), 0) != 0 && errno == ESRCH;
}

}  // namespace sluice::base
