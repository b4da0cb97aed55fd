// SPDX-License-Identifier: Apache-2.0
// A locale with a decimal comma, as in de_DE.UTF-8, made by the test itself: few machines have one.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <string>

namespace sluice::tests {

class DecimalComma {
 public:
  DecimalComma() {
    std::filesystem::create_directories(folder_);
    EXPECT_EQ(std::system(("localedef -i de_DE -f UTF-8 " + folder_ + "/de_DE.UTF-8").c_str()), 0);
  }
  DecimalComma(const DecimalComma&) = delete;
  DecimalComma& operator=(const DecimalComma&) = delete;
  ~DecimalComma() { std::filesystem::remove_all(folder_); }

  /// From now on this process, which is the test's own, prints so: in C and in C++.
  void use() const {
    ::setenv("LOCPATH", folder_.c_str(), 1);
    ASSERT_NE(std::setlocale(LC_ALL, "de_DE.UTF-8"), nullptr);
    ASSERT_STREQ(std::localeconv()->decimal_point, ",");
    std::locale::global(std::locale("de_DE.UTF-8"));
  }

 private:
  const std::string folder_ = testing::TempDir() + "sluice_locale_" + std::to_string(::getpid());
};

}  // namespace sluice::tests
