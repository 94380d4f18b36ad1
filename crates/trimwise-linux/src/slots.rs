//! A slab: values by number, for calls that are in flight. Numbers are reused.

pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn put(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(number) => {
                self.slots[number] = Some(value);
                number
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() - 1
            }
        }
    }

    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.slots.get_mut(number).and_then(Option::as_mut)
    }

    pub fn take(&mut self, number: usize) -> Option<T> {
        let taken = self.slots.get_mut(number).and_then(Option::take);
        if taken.is_some() {
            self.free.push(number);
        }
        taken
    }
}
