(** Proofs of Statements/Selection.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Selection.
From LAI Require Import Vectors.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The regret, sample by sample. *)
Lemma regret_le (R : realFieldType) n (v v' b : 'I_n -> R) :
  (forall k, Num.max (v k) 0 - (if 0 < v' k then v k else 0) <= b k) ->
  \sum_k Num.max (v k) 0 - \sum_(k | 0 < v' k) v k <= \sum_k b k.
Proof. by move=> h; rewrite [X in _ - X]big_mkcond -sumrB; apply: ler_sum => k _; apply: h. Qed.

Theorem selection_regret : Statements.Selection.selection_regret.
Proof.
move=> R n v v' lambda l0; apply: regret_le => k; case: ifP => h.
  have [v0|v0] := lerP (v k) 0; last by rewrite subrr.
  rewrite sub0r distrC; apply: le_trans (ler_norm _).
  by rewrite ler_addr mulr_ge0 // ltW.
rewrite subr0; have [v0|v0] := lerP (v k) 0; first by [].
apply: le_trans (ler_norm _); rewrite ler_addl oppr_ge0; apply: mulr_ge0_le0 => //.
by rewrite leNgt h.
Qed.

Theorem self_exclusion : Statements.Selection.self_exclusion.
Proof.
by move=> R p n g j; rewrite (bigD1 j) //= norm_sqr -ltr_subr_addl sub0r.
Qed.
