/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A program in C++ without frame pointers: virtual calls, recursion, calls back
 * from the library, and exceptions through several frames. crowd_test.py has the
 * calls that there are. All work is done in spin().
 */

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

namespace
{

constexpr unsigned turns = 3000, values = 16, depth = 12;

volatile unsigned long steps;

NOINLINE void spin(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		steps = steps + 1;
}

struct Shape {
	virtual ~Shape() = default;
	virtual unsigned long area(unsigned turn) const = 0;
};

struct Circle final : Shape {
	NOINLINE unsigned long area(unsigned turn) const override
	{
		spin(turns);
		return steps * turn;
	}
};

struct Square final : Shape {
	NOINLINE unsigned long area(unsigned turn) const override
	{
		spin(2 * turns);
		return steps - turn;
	}
};

NOINLINE void measure(const std::vector<std::unique_ptr<Shape>> &shapes)
{
	unsigned long sum = 0;

	for (unsigned i = 0; i < shapes.size(); i++)
		sum += shapes[i]->area(i);
	steps = steps + sum % 2;
}

NOINLINE void grow(unsigned left)
{
	spin(turns / 4);
	if (left) {
		grow(left - 1);
		steps = steps + 1;
	}
}

NOINLINE int by_bits(const void *a, const void *b)
{
	const unsigned left = *static_cast<const unsigned *>(a), right = *static_cast<const unsigned *>(b);

	spin(turns / 8);
	return left < right ? -1 : left > right;
}

NOINLINE void order()
{
	unsigned all[values];

	for (unsigned i = 0; i < values; i++)
		all[i] = i * 2654435761u >> 7;
	std::qsort(all, values, sizeof(all[0]), by_bits);
	steps = steps + all[0];
}

NOINLINE void climb(unsigned left)
{
	std::vector<unsigned> own(left + 1);

	spin(turns / 8);
	if (!left)
		throw std::runtime_error("the top");
	climb(left - 1);
	steps = steps + own[0];
}

NOINLINE void fall()
{
	try {
		climb(depth);
	} catch (const std::runtime_error &error) {
		steps = steps + 1;
	}
}

NOINLINE void round_of(const std::vector<std::unique_ptr<Shape>> &shapes)
{
	measure(shapes);
	grow(depth);
	order();
	fall();
	steps = steps + 1;
}

}

int main()
{
	std::vector<std::unique_ptr<Shape>> shapes;

	for (unsigned i = 0; i < 3; i++) {
		shapes.push_back(std::make_unique<Circle>());
		shapes.push_back(std::make_unique<Square>());
	}
	for (;;)
		round_of(shapes);
}
