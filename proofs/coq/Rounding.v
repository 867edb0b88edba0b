(** Proofs of Statements/Rounding.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Rounding.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* n roundings move 1 by at most n u / (1 - n u). *)
Lemma product_le (R : realFieldType) (u : R) n (delta : 'I_n -> R) : 0 <= u -> (forall k, `|delta k| <= u) ->
  n%:R * u < 1 -> `|\prod_k (1 + delta k) - 1| <= n%:R * u / (1 - n%:R * u).
Proof.
move=> u0; elim: n delta => [|n IH] delta hd small; first by rewrite big_ord0 subrr normr0 !mul0r.
have one : 0 < 1 - n.+1%:R * u by rewrite subr_gt0.
have step : 1 - n.+1%:R * u <= 1 - n%:R * u by rewrite ler_add2l ler_opp2 ler_wpmul2r // ler_nat.
have few : n%:R * u < 1 by rewrite -subr_gt0; apply: lt_le_trans step.
rewrite big_ord_recr /=; set P := \prod_(i < n) _; set d := delta _.
have -> : P * (1 + d) - 1 = (P - 1) * (1 + d) + d by ring.
have hP : `|P - 1| <= n%:R * u / (1 - n%:R * u) by apply: IH few => k; apply: hd.
have hd1 : `|1 + d| <= 1 + u by rewrite (le_trans (ler_norm_add _ _)) // normr1 ler_add2l hd.
apply: le_trans (ler_norm_add _ _) _; rewrite normrM.
apply: le_trans (ler_add (ler_pmul (normr_ge0 _) (normr_ge0 _) hP hd1) (hd _)) _.
have few0 : 0 < 1 - n%:R * u by rewrite subr_gt0.
rewrite -subr_ge0.
have -> : n.+1%:R * u / (1 - n.+1%:R * u) - (n%:R * u / (1 - n%:R * u) * (1 + u) + u)
        = n.+1%:R * u ^+ 2 / ((1 - n.+1%:R * u) * (1 - n%:R * u)).
  have n0 := gt_eqF few0; have n1 := gt_eqF one; rewrite -addn1 natrD in n1 *.
  by field; rewrite n0 n1.
by rewrite divr_ge0 ?mulr_ge0 ?sqr_ge0 ?ler0n // ltW.
Qed.

Theorem rounding_error : Statements.Rounding.rounding_error.
Proof.
move=> R m n u t delta [u0 hd] small; rewrite -sumrB mulr_sumr.
apply: le_trans (ler_norm_sum _ _ _) _; apply: ler_sum => i _.
rewrite -[X in _ - X]mulr1 -mulrBr normrM mulrC ler_wpmul2r ?normr_ge0 //.
exact: product_le.
Qed.
