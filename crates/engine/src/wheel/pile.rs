//! Piles: entries in no order, each of which can be found and pulled out by its id.
//!
//! A pile is a chain of blocks of 32 entries, of which only the top one may be partly filled. An entry is put on
//! the top. When one is pulled out from below, the topmost entry takes its place. To find it, there is a table from
//! id to place, and a place is the number of a block and a position in it.
//!
//! Lists linked from entry to entry would need the same 16 bytes. But a walk along such a list waits for memory at
//! every step, as its entries lie scattered, while a block is read in one go. What remains scattered are the lines
//! of the table, and these are known beforehand for a whole block, so that the processor fetches them together.
//!
//! Per entry that is 12 bytes in a block, 4 in the table, a quarter of a byte for what links the blocks, and for each
//! pile in use half a block. Blocks and table grow by chunks of about 64 KiB, which are never copied.

/// A block has 32 entries.
const BLOCK_BITS: u32 = 5;
const BLOCK: usize = 1 << BLOCK_BITS;
/// Blocks in a chunk, 49 KiB.
const CHUNK: usize = 128;
/// Places in a page of the table, 64 KiB.
const PAGE: usize = 1 << 14;
/// The number of no block, and the place of an id that lies nowhere.
const NONE: u32 = u32::MAX;

/// A number of piles, and where their entries lie.
pub(super) struct Piles {
    heads: Box<[PileHead]>,
    chunks: Vec<Box<[Block; CHUNK]>>,
    /// The first block that belongs to no pile; the others follow by `below`.
    free: u32,
    /// The place of each id.
    table: Vec<Option<Box<[u32; PAGE]>>>,
}

/// What a pile is known by.
#[derive(Clone, Copy)]
struct PileHead {
    top: u32,
    len: u32,
}

#[derive(Clone, Copy)]
struct Block {
    below: u32,
    len: u32,
    ids: [u32; BLOCK],
    times: [u64; BLOCK],
}

impl Block {
    fn entries(&self) -> impl Iterator<Item = (u64, u32)> {
        let len = self.len as usize;
        self.times[..len].iter().copied().zip(self.ids[..len].iter().copied())
    }
}

impl Piles {
    pub(super) fn new(count: usize) -> Self {
        let heads = vec![PileHead { top: NONE, len: 0 }; count].into_boxed_slice();
        Self { heads, chunks: Vec::new(), free: NONE, table: Vec::new() }
    }

    /// How many entries lie on a pile.
    pub(super) fn len(&self, pile: usize) -> usize {
        self.heads[pile].len as usize
    }

    /// The time of an entry, if it lies on any pile.
    pub(super) fn time_of(&self, id: u32) -> Option<u64> {
        let place = self.place(id);
        let (block, position) = split(place, BLOCK);
        (place != NONE).then(|| self.chunks[block / CHUNK][block % CHUNK].times[position])
    }

    /// All entries of a pile.
    pub(super) fn entries(&self, pile: usize) -> impl Iterator<Item = (u64, u32)> {
        let block = |number: u32| (number != NONE).then(|| self.block(number));
        let top = block(self.heads[pile].top);
        std::iter::successors(top, move |above| block(above.below)).flat_map(Block::entries)
    }

    /// Puts an entry, which must not lie on any pile, on the top of one.
    pub(super) fn put(&mut self, pile: usize, at: u64, id: u32) {
        if self.len(pile).is_multiple_of(BLOCK) {
            self.add_block(pile);
        }
        let head = &mut self.heads[pile];
        head.len += 1;
        let top = head.top;
        let block = self.block_mut(top);
        let position = block.len;
        block.len += 1;
        block.ids[position as usize] = id;
        block.times[position as usize] = at;
        *self.place_mut(id) = top << BLOCK_BITS | position;
    }

    /// Pulls an entry out of the pile on which it lies.
    pub(super) fn remove(&mut self, pile: usize, id: u32) {
        let gap = std::mem::replace(self.place_mut(id), NONE);
        let (at, topmost) = self.pop(pile);
        if topmost != id {
            let (block, position) = split(gap, BLOCK);
            let block = &mut self.chunks[block / CHUNK][block % CHUNK];
            block.ids[position] = topmost;
            block.times[position] = at;
            *self.place_mut(topmost) = gap;
        }
    }

    /// Moves the entries of a pile's top block to the end of a list, from where they are to be put on another pile or
    /// forgotten. Says whether there were any.
    pub(super) fn take_block(&mut self, pile: usize, list: &mut Vec<(u64, u32)>) -> bool {
        let PileHead { top, len } = self.heads[pile];
        if top == NONE {
            return false;
        }
        let block = self.block(top);
        // Besides proving the table right, this reads all its lines that are about to be written, none of which
        // waits for another. Without it, dealing takes a quarter longer.
        let places = (top << BLOCK_BITS..).zip(&block.ids[..block.len as usize]);
        let right = places.fold(true, |right, (place, &id)| right & (self.place(id) == place));
        assert!(right, "the table tells where each entry lies");
        list.extend(block.entries());
        self.heads[pile] = PileHead { top: block.below, len: len - block.len };
        self.release(top);
        true
    }

    /// Forgets where an entry lay that was taken.
    pub(super) fn forget(&mut self, id: u32) {
        *self.place_mut(id) = NONE;
    }

    /// Exchanges the entries of two piles.
    pub(super) fn swap(&mut self, one: usize, other: usize) {
        self.heads.swap(one, other);
    }

    /// Takes the topmost entry off a pile that has one.
    fn pop(&mut self, pile: usize) -> (u64, u32) {
        let top = self.heads[pile].top;
        let block = self.block_mut(top);
        block.len -= 1;
        let (last, below) = (block.len as usize, block.below);
        let entry = (block.times[last], block.ids[last]);
        self.heads[pile].len -= 1;
        if last == 0 {
            self.heads[pile].top = below;
            self.release(top);
        }
        entry
    }

    /// Puts an empty block on a pile.
    fn add_block(&mut self, pile: usize) {
        if self.free == NONE {
            self.add_chunk();
        }
        let added = self.free;
        let below = std::mem::replace(&mut self.heads[pile].top, added);
        self.free = std::mem::replace(&mut self.block_mut(added).below, below);
    }

    /// Makes a block, empty, one that belongs to no pile.
    fn release(&mut self, number: u32) {
        let free = std::mem::replace(&mut self.free, number);
        let block = self.block_mut(number);
        block.below = free;
        block.len = 0;
    }

    #[cold]
    fn add_chunk(&mut self) {
        let first = self.chunks.len() * CHUNK;
        assert!(first + CHUNK <= (NONE >> BLOCK_BITS) as usize, "places for four billion entries");
        let block = Block { below: NONE, len: 0, ids: [0; BLOCK], times: [0; BLOCK] };
        let blocks = vec![block; CHUNK].into_boxed_slice();
        self.chunks.push(blocks.try_into().unwrap_or_else(|_| unreachable!("of this length")));
        let first = u32::try_from(first).expect("it was checked above");
        (first..).take(CHUNK).for_each(|number| self.release(number));
    }

    fn block(&self, number: u32) -> &Block {
        let (chunk, index) = split(number, CHUNK);
        &self.chunks[chunk][index]
    }

    fn block_mut(&mut self, number: u32) -> &mut Block {
        let (chunk, index) = split(number, CHUNK);
        &mut self.chunks[chunk][index]
    }

    /// The place of an id, or `NONE`.
    fn place(&self, id: u32) -> u32 {
        let (page, line) = split(id, PAGE);
        self.table.get(page).and_then(Option::as_ref).map_or(NONE, |page| page[line])
    }

    fn place_mut(&mut self, id: u32) -> &mut u32 {
        let (page, line) = split(id, PAGE);
        if self.table.get(page).is_none_or(Option::is_none) {
            self.add_page(page);
        }
        &mut self.table[page].as_mut().expect("it was there or was added")[line]
    }

    #[cold]
    fn add_page(&mut self, page: usize) {
        if page >= self.table.len() {
            self.table.resize_with(page + 1, || None);
        }
        let places = vec![NONE; PAGE].into_boxed_slice();
        self.table[page] = Some(places.try_into().expect("of this length"));
    }
}

/// Which piece a number falls into when numbers are cut into pieces of a length, and where in it.
fn split(number: u32, length: usize) -> (usize, usize) {
    (number as usize / length, number as usize % length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies on a pile, in order, after a check that the table and the blocks agree.
    fn ids(piles: &Piles, pile: usize) -> Vec<u32> {
        let mut ids: Vec<u32> = piles.entries(pile).map(|(_, id)| id).collect();
        ids.sort_unstable();
        assert_eq!(ids.len(), piles.len(pile));
        assert!(piles.entries(pile).all(|(at, id)| piles.time_of(id) == Some(at)));
        ids
    }

    #[test]
    fn an_entry_can_be_pulled_out_from_anywhere() {
        for count in [1, 2, 31, 32, 33, 64, 65, 100] {
            for pulled in 0..count {
                let mut piles = Piles::new(1);
                (0..count).for_each(|id| piles.put(0, u64::from(id) * 10, id));
                piles.remove(0, pulled);
                let left: Vec<u32> = (0..count).filter(|&id| id != pulled).collect();
                assert_eq!(ids(&piles, 0), left);
                assert_eq!(piles.time_of(pulled), None);
            }
        }
    }

    #[test]
    fn blocks_are_used_again() {
        let mut piles = Piles::new(3);
        for round in 0..1_000 {
            let (from, to) = (round % 2, 1 - round % 2);
            (0..2_000).for_each(|id| piles.put(from, 1, id));
            (0..500).for_each(|id| piles.remove(from, id));
            let mut hand = Vec::new();
            while piles.take_block(from, &mut hand) {
                hand.drain(..).for_each(|(at, id)| piles.put(to, at + 1, id));
            }
            assert_eq!(ids(&piles, to), (500..2_000).collect::<Vec<_>>());
            piles.swap(to, 2);
            (500..2_000).for_each(|id| piles.remove(2, id));
        }
        assert_eq!(piles.chunks.len(), 1, "2,000 entries are 63 blocks");
    }

    #[test]
    fn only_pages_in_use_are_there() {
        let mut piles = Piles::new(1);
        assert_eq!(piles.time_of(50_000_000), None);
        piles.put(0, 1, 50_000_000);
        piles.put(0, 2, 3);
        assert_eq!(piles.table.iter().flatten().count(), 2);
        assert_eq!(ids(&piles, 0), [3, 50_000_000]);
    }
}
