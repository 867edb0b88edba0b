(** A witness of Statements/Selection.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks.
From LAI Require Import Vectors Witness Witnesses.Instances.
From LAI Require Statements.Selection.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Lemma selection_regret : ltac:(witness Statements.Selection.selection_regret).
Proof. by move=> R; exists 1; exact: ler01. Qed.
