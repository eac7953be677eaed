// SPDX-License-Identifier: BSD-3-Clause

// Prints its own backtrace, from within a trait's method and a generic type.

mod till {
    pub trait Price {
        fn cents(&self) -> u64;
    }

    impl Price for u32 {
        #[inline(never)]
        fn cents(&self) -> u64 {
            super::show();
            u64::from(*self) + 1
        }
    }

    pub struct Basket<T> {
        pub items: Vec<T>,
    }

    impl<T: Price> Basket<T> {
        #[inline(never)]
        pub fn sum(&self) -> u64 {
            let mut all = 1;
            for item in &self.items {
                all *= item.cents();
            }
            all
        }
    }
}

#[inline(never)]
fn show() {
    panic!("so that there is a backtrace");
}

fn main() {
    let _ = std::panic::catch_unwind(|| {
        let basket = till::Basket { items: vec![1u32] };
        println!("{}", basket.sum());
    });
}
