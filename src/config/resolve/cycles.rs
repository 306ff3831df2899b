//! Cycles in a graph, in linear time (Tarjan's strongly connected components, without recursion).

/// Returns a component number for each node. Two nodes have the same number if and only if each can be reached from the
/// other. `edges` has the successors of each node.
pub(super) fn strongly_connected_components(edges: &[Vec<usize>]) -> Vec<usize> {
    let mut search = ComponentSearch {
        index: vec![None; edges.len()],
        low: vec![0; edges.len()],
        ..ComponentSearch::default()
    };
    let mut found = vec![usize::MAX; edges.len()];
    for root in 0..edges.len() {
        if search.index.get(root).copied().flatten().is_none() {
            search.search_from(root, edges, &mut found);
        }
    }
    found
}

/// State of a depth-first search for strongly connected components.
#[derive(Default)]
struct ComponentSearch {
    /// Order in which a node was first visited.
    index: Vec<Option<usize>>,
    /// Lowest index of an open node that can be reached from the node.
    low: Vec<usize>,
    /// Nodes without a component yet, in the order in which they were visited.
    open: Vec<usize>,
    seen: usize,
    components: usize,
}

impl ComponentSearch {
    fn search_from(&mut self, root: usize, edges: &[Vec<usize>], found: &mut [usize]) {
        // Current path of the search: its nodes, each with the index of its next edge.
        let mut path = vec![(root, 0)];
        self.visit(root);
        while let Some((node, next)) = path.last_mut() {
            let (node, edge) = (*node, *next);
            *next += 1;
            let Some(to) = edges.get(node).and_then(|edges| edges.get(edge)).copied() else {
                path.pop();
                self.finish_node(node, path.last().map(|(before, _)| *before), found);
                continue;
            };
            match self.index.get(to).copied().flatten() {
                None if to < edges.len() => {
                    self.visit(to);
                    path.push((to, 0));
                }
                // The target has no component yet, so it is open.
                Some(index) if found.get(to) == Some(&usize::MAX) => self.update_low(node, index),
                _ => {}
            }
        }
    }

    fn visit(&mut self, node: usize) {
        let seen = self.seen;
        self.seen += 1;
        if let Some(index) = self.index.get_mut(node) {
            *index = Some(seen);
        }
        if let Some(low) = self.low.get_mut(node) {
            *low = seen;
        }
        self.open.push(node);
    }

    fn update_low(&mut self, node: usize, candidate: usize) {
        if let Some(low) = self.low.get_mut(node) {
            *low = candidate.min(*low);
        }
    }

    /// Finishes a node after all its edges. If the node reaches no node that was visited earlier, it and the open nodes
    /// after it form a component.
    fn finish_node(&mut self, node: usize, before: Option<usize>, found: &mut [usize]) {
        let low = self.low.get(node).copied().unwrap_or_default();
        if let Some(before) = before {
            self.update_low(before, low);
        }
        if self.index.get(node).copied().flatten() != Some(low) {
            return;
        }
        while let Some(member) = self.open.pop() {
            if let Some(component) = found.get_mut(member) {
                *component = self.components;
            }
            if member == node {
                break;
            }
        }
        self.components += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn nodes_that_reach_each_other_have_one_number() {
        let found = strongly_connected_components(&[
            vec![1],
            vec![2],
            vec![0, 3],
            vec![4],
            vec![3],
            vec![5],
            vec![0, 4],
            vec![],
        ]);
        assert!(found[0] == found[1] && found[1] == found[2]);
        assert_eq!(found[3], found[4]);
        let mut apart = [found[0], found[3], found[5], found[6], found[7]];
        apart.sort_unstable();
        assert!(apart.windows(2).all(|pair| pair[0] != pair[1]), "{found:?}");
        assert!(strongly_connected_components(&[]).is_empty());
        assert_eq!(strongly_connected_components(&[vec![7, 0]]).len(), 1, "an edge to nowhere leads nowhere");
    }

    #[test]
    fn a_chain_of_any_length_is_followed_without_recursion() {
        let long = 200_000;
        let mut chain: Vec<Vec<usize>> = (0..long).map(|at| vec![at + 1]).collect();
        chain.push(vec![]);
        let found = strongly_connected_components(&chain);
        assert_ne!(found[0], found[long]);
        chain[long].push(0);
        let found = strongly_connected_components(&chain);
        assert!(found.iter().all(|number| *number == found[0]));
    }
}
