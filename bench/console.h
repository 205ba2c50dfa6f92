// What the probe writes for people: aligned tables on stdout, progress on a terminal's stderr.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace memra::bench {

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// Columns as wide as their widest cell: the first one to the left, the others to the right; the
// last one to the left where it holds text.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void text_last() { text_last_ = true; }
  void print(std::FILE* file) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  bool text_last_ = false;
};

// One line that is overwritten, on stderr where that is a terminal; silent elsewhere.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace memra::bench
