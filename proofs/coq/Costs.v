(** Proofs of Statements/Costs.v. *)
From mathcomp Require Import all_ssreflect.
From LAI.Statements Require Import Costs.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* The widths after the first and those before the last are the same but for two. *)
Lemma shifted L (d : nat -> nat) : d 0 + \sum_(l < L) d l.+1 = \sum_(l < L) d l + d L.
Proof. by rewrite -(big_ord_recl L (fun l : 'I_L.+1 => d l)) big_ord_recr. Qed.

Theorem cache_below_two : Statements.Costs.cache_below_two.
Proof.
move=> L d positive; rewrite /ghost_cache /lai_cache big_split /= mul2n -addnn.
rewrite -{2}shifted addnACA [d L + _]addnC -addnA ltn_add2l.
by rewrite addnCA -[X in X < _]addn0 ltn_add2l addn_gt0 positive.
Qed.

Theorem passes_below_two : Statements.Costs.passes_below_two.
Proof.
move=> [//|L] d positive _; rewrite /ghost_passes /forward mul2n -addnn ltn_add2l.
by rewrite big_ord_recl /= addnC addnK -[X in X < _]addn0 ltn_add2l muln_gt0 !positive.
Qed.

Theorem equal_caches : Statements.Costs.equal_caches.
Proof.
move=> L w; rewrite /ghost_cache /lai_cache !sum_nat_const !card_ord -mulSnr addnn -mul2n.
by rewrite mulnC -mulnA; congr (_ * _); rewrite mulnCA [RHS]mulnCA (mulnC w).
Qed.

Theorem equal_passes : Statements.Costs.equal_passes.
Proof.
move=> [//|L] w _; rewrite /ghost_passes /forward !sum_nat_const !card_ord mulSn (addnC (w * w)) addnK.
have -> : (2 * L.+1).-1 = L.+1 + L by rewrite mul2n -addnn addnS.
by rewrite -mulSnr -mulnDl mulnC mulnCA [RHS]mulnC.
Qed.

Theorem no_order_of_magnitude : Statements.Costs.no_order_of_magnitude.
Proof.
move=> L d k positive L0 k2; split.
  by apply: leq_trans (cache_below_two L positive) _; rewrite leq_mul2r k2 orbT.
by apply: leq_trans (passes_below_two positive L0) _; rewrite leq_mul2r k2 orbT.
Qed.
