//! What nobody reads is neither read from a file nor worked out.

use std::collections::BTreeSet;

use xlog_relational::{Expr, Schema};

use super::{LogicalPlan, Operation, logical::columns_of};

impl LogicalPlan {
    /// Takes out every column that no result depends on.
    pub(crate) fn prune(&mut self) {
        let mut needed: Vec<BTreeSet<String>> = vec![BTreeSet::new(); self.nodes.len()];
        let mut read = vec![false; self.nodes.len()];
        for output in &self.outputs {
            needed[*output] = names(&self.nodes[*output].schema);
            read[*output] = true;
        }
        // A node comes after what it reads: need spreads in one pass.
        for index in (0..self.nodes.len()).rev() {
            if !read[index] {
                continue;
            }
            self.narrow(index, &needed[index]);
            let wanted = self.wanted(index, &needed[index]);
            for (input, columns) in self.nodes[index].inputs.clone().into_iter().zip(wanted) {
                read[input] = true;
                needed[input].extend(columns);
            }
        }
        // From the first to the last: what the inputs lost, a node that passes columns on loses.
        for index in 0..self.nodes.len() {
            if read[index] {
                self.restrict(index, &needed[index]);
            }
        }
    }

    /// Takes columns out of an operator that makes them.
    fn narrow(&mut self, index: usize, needed: &BTreeSet<String>) {
        let node = &mut self.nodes[index];
        match &mut node.operation {
            Operation::Project(columns) => {
                // Rows are counted by their columns: one stays.
                if !columns.iter().any(|(name, _)| needed.contains(name)) {
                    columns.truncate(1);
                } else {
                    columns.retain(|(name, _)| needed.contains(name));
                }
            }
            Operation::Join(spec) => {
                let any = spec.left.iter().chain(&spec.right).any(|(_, o)| needed.contains(o));
                if any {
                    spec.left.retain(|(_, output)| needed.contains(output));
                    spec.right.retain(|(_, output)| needed.contains(output));
                } else {
                    spec.left.truncate(1);
                    spec.right.truncate(usize::from(spec.left.is_empty()));
                }
            }
            _ => {}
        }
    }

    /// What an operator reads of each of its inputs, if those columns of its own are needed.
    fn wanted(&self, index: usize, needed: &BTreeSet<String>) -> Vec<BTreeSet<String>> {
        let node = &self.nodes[index];
        let of_exprs = |exprs: &mut dyn Iterator<Item = &Expr>| {
            let mut columns = BTreeSet::new();
            exprs.for_each(|expr| columns_of(expr, &mut |name| columns.extend([name.to_owned()])));
            columns
        };
        match &node.operation {
            Operation::Scan { .. } => vec![],
            Operation::Filter(expr) => {
                let mut columns = of_exprs(&mut std::iter::once(expr));
                columns.extend(needed.iter().cloned());
                vec![columns]
            }
            Operation::Project(columns) => {
                vec![of_exprs(&mut columns.iter().map(|(_, expr)| expr))]
            }
            Operation::Join(spec) => {
                let mut sides = [BTreeSet::new(), BTreeSet::new()];
                for (left, right) in &spec.on {
                    sides[0].insert(left.clone());
                    sides[1].insert(right.clone());
                }
                sides[0].extend(spec.left.iter().map(|(name, _)| name.clone()));
                sides[1].extend(spec.right.iter().map(|(name, _)| name.clone()));
                sides.to_vec()
            }
            Operation::Group { keys, aggregates } => {
                let figures = aggregates.iter().filter_map(|figure| figure.column.as_ref());
                vec![keys.iter().chain(figures).cloned().collect()]
            }
            Operation::Sort { keys, .. } => {
                let keys = keys.iter().map(|key| key.column.clone());
                vec![needed.iter().cloned().chain(keys).collect()]
            }
            Operation::Limit { .. } => vec![needed.clone()],
            // Every column decides which rows are the same.
            Operation::Distinct | Operation::Set(_) => {
                node.inputs.iter().map(|input| names(&self.nodes[*input].schema)).collect()
            }
        }
    }

    /// Makes the schema of a node what its operator leaves of it.
    fn restrict(&mut self, index: usize, needed: &BTreeSet<String>) {
        let node = &self.nodes[index];
        let kept: BTreeSet<String> = match &node.operation {
            Operation::Scan { .. } => match needed.is_empty() {
                false => needed.clone(),
                true => cheapest(&node.schema).into_iter().collect(),
            },
            Operation::Project(columns) => columns.iter().map(|(name, _)| name.clone()).collect(),
            Operation::Join(spec) => {
                spec.left.iter().chain(&spec.right).map(|(_, output)| output.clone()).collect()
            }
            Operation::Group { .. } => return,
            _ => names(&self.nodes[node.inputs[0]].schema),
        };
        let node = &mut self.nodes[index];
        let by_place = matches!(node.operation, Operation::Set(_));
        if !by_place {
            let fields = node.schema.fields().iter().filter(|field| kept.contains(&field.name));
            node.schema = Schema::new(fields.cloned().collect()).unwrap_or_default();
        }
    }
}

fn names(schema: &Schema) -> BTreeSet<String> {
    schema.fields().iter().map(|field| field.name.clone()).collect()
}

/// The column that costs least to read where only rows are counted.
fn cheapest(schema: &Schema) -> Option<String> {
    let cost = |data_type: xlog_relational::DataType| match data_type {
        xlog_relational::DataType::Utf8 => 16,
        other => other.size(),
    };
    schema.fields().iter().min_by_key(|field| cost(field.data_type)).map(|f| f.name.clone())
}
