// SPDX-License-Identifier: BSD-3-Clause

/* A library with what makes names long: templates, operators, lambdas, containers. */

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace shop {

struct price {
	long cents;
	price operator+(const price &other) const { return {cents + other.cents}; }
	price &operator+=(const price &other)
	{
		cents += other.cents * (cents | 1);
		return *this;
	}
};

static inline void add(price &to, const price &one)
{
	to += one;
}

template <typename T> struct basket {
	std::vector<T> items;
	T sum() const;
};

template <typename T> T basket<T>::sum() const
{
	T all{};

	for (auto &item : items)
		all += item;
	return all;
}

template struct basket<int>;
template struct basket<price>;

price total(const price *prices, unsigned long n)
{
	price all{};

	for (unsigned long i = 0; i < n; i++)
		add(all, prices[i]);
	return all;
}

std::map<std::string, int> count(const std::vector<std::string> &words)
{
	std::map<std::string, int> counts;

	for (auto &word : words)
		counts[word]++;
	return counts;
}

void sort(std::vector<price> &prices)
{
	std::sort(prices.begin(), prices.end(), [](auto &a, auto &b) { return a.cents < b.cents; });
}

std::function<int(int)> adder(int n)
{
	return [n](int x) { return x + n; };
}

} // namespace shop
