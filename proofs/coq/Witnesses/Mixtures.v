(** Witnesses of Statements/Mixtures.v: linear losses, whose gradients do not depend on the point. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Gradients Mixtures.
From LAI Require Import Vectors Ghost Witness Witnesses.Instances.
From LAI Require Statements.Mixtures.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Linear.
Variables (R : realFieldType) (m n : nat) (G : 'M[R]_(m, n)).
Lemma linear_slope x : gradient (dot G) x G.
Proof.
by move=> e e0; exists 1 => // D _; rewrite dotDr addrAC addrK subrr normr0 mulr_ge0 ?size1_ge0 // ltW.
Qed.
(* The same, for a function that is equal to it. *)
Lemma linear_slope_of f x : f =1 dot G -> gradient f x G.
Proof. by move=> fE e /(linear_slope x) [t t0 h]; exists t => // D /h; rewrite !fE. Qed.
End Linear.

(* Two sources of two samples each, all with the validation loss's gradient, the first unit vector. *)
Lemma share_derivative : ltac:(witness Statements.Mixtures.share_derivative).
Proof.
move=> R; exists 2%N; split=> //; exists 2%N; split=> //; exists (fun=> 2%N); split=> //.
exists (fun _ _ => corner R 1 0); split=> [*|]; first exact: corner_neq0.
exists (dot (corner R 1 0)), (corner R 1 0); split; first exact: corner_neq0.
exists (corner R 1 0); split; first exact: corner_neq0.
exists 1, 1%:M; split; first by rewrite -mxrank_eq0 mxrank1.
exists (corner R 1 0); split; first exact: corner_neq0.
exists (stepped (fun (_ : 'I_2) (_ : 'I_2) => corner R 1 0) (corner R 1 0) 1 1%:M).
by split=> //; split; [exact: trmx1|exact: linear_slope].
Qed.

Lemma hedge_step : ltac:(witness Statements.Mixtures.hedge_step).
Proof. by move=> R; exists 1, 10%:R, 1; rewrite !ltr0n !ltr01. Qed.

(* Two losses with one gradient. *)
Ltac take_losses R :=
  do 3 (exists 2%N; split=> //); exists (fun=> dot (corner R 1 1)), (corner R 1 1);
  split; [exact: corner_neq0|exists (fun=> corner R 1 1)]; split=> [*|]; [exact: corner_neq0|];
  exists (2%:R *: corner R 1 1);
  split; [by rewrite scaler_eq0 negb_or pnatr_eq0 corner_neq0|];
  exists (fun w => (w 0 ord0 + w 0 ord_max) *: corner R 1 1), ord0; split=> [k|]; [exact: linear_slope|];
  split; [by apply: linear_slope_of => y; rewrite dotZl !big_ord_recl big_ord0 addr0 mulr_natl mulr2n|];
  split=> [w|];
    [by apply: linear_slope_of => y; rewrite dotZl !big_ord_recl big_ord0 addr0 -mulrDl
       (_ : lift ord0 ord0 = ord_max) //; apply: val_inj|].
Lemma sample_ownership : ltac:(witness Statements.Mixtures.sample_ownership).
Proof.
split=> [|R].
  move=> R; split.
    take_losses R; exists ord_max; split=> //; split; first exact: corner_neq0.
    have one0 : const_mx 1 != 0 :> 'rV[R]_2.
      by apply/eqP => /rowP /(_ 0); rewrite !mxE => /eqP; rewrite oner_eq0.
    have hidden : ((const_mx 1 : 'rV[R]_2) 0 ord0 + (const_mx 1 : 'rV[R]_2) 0 ord_max) *: corner R 1 1
        - (const_mx 1 : 'rV[R]_2) 0 ord0 *: (2%:R *: corner R 1 1) = 0.
      by rewrite !mxE scale1r -(natrD _ 1 1) subrr.
    by do 2 (exists (const_mx 1); split=> //).
  take_losses R; exists ord_max; split=> //; split; first exact: corner_neq0.
  exists [finType of bool]; split; first by rewrite card_bool.
  by exists (fun b : bool => b%:R) => [[] []] //= /eqP; rewrite ?(eqr_nat R 0 1) ?(eqr_nat R 1 0).
take_losses R; exists (delta_mx 0 ord_max); split.
  by apply/eqP => /rowP /(_ ord_max) /eqP; rewrite !mxE !eqxx oner_eq0.
have only (l : 'I_2) : l != ord0 -> l = ord_max by case: l => [[|[]]] // h _; apply: val_inj.
exists ord_max; split=> //; split; first exact: corner_neq0; split=> [c h l /only -> _|l /only ->].
  apply/eqP; move/eqP: h; rewrite (bigD1 ord_max) ?corner_neq0 //= big1 => [|k /andP [/andP [/only ->]]].
    by rewrite addr0 scaler_eq0 (negPf (corner_neq0 R 1 1)) orbF.
  by rewrite eqxx.
by rewrite !mxE !eqxx oner_eq0.
Qed.

(* All similarities are 1, and so is the weight that fits them; 0 fits them worse. *)
Lemma decoupled : ltac:(witness Statements.Mixtures.decoupled).
Proof.
move=> R; exists [finType of bool]; split; first by rewrite card_bool.
have sum2 : \sum_(z : bool) (1 ^+ 2 * 1 ^+ 2) = 2%:R :> R by rewrite big_bool /= !expr1n mulr1 -(natrD _ 1 1).
exists (fun=> 1), (fun=> 1), (fun=> 1); rewrite sum2 pnatr_eq0; split=> //.
exists 0; rewrite /slope sum2 big_bool /= expr1n !mulr1 -(natrD _ 1 1) divff ?pnatr_eq0 //.
by rewrite eq_sym oner_eq0.
Qed.

(* Two sources, equal shares at the start, the second with twice the factor; half of the prior is mixed in. *)
Section Doubling.
Variable R : realFieldType.
Local Notation half := (2%:R^-1 : R).
Definition doubled (k : 'I_2) : R := k.+1%:R.
Fixpoint doubling t : 'I_2 -> R :=
  if t is t'.+1 then moved half (fun=> half) (doubling t') doubled else fun=> half.
End Doubling.

Lemma mixture_regret : ltac:(witness Statements.Mixtures.mixture_regret).
Proof.
move=> R; exists 2%N; split=> //; exists 2%:R^-1, (fun=> 2%:R^-1), (@doubling R), (fun=> @doubled R).
split; first by split=> [k|]; [rewrite invr_gt0 ltr0n|rewrite big_ord_recl big_ord1; field].
split; first by rewrite invr_ge0 ler0n invf_le1 ?ltr0n // ler1n.
by split=> [t k|]; [rewrite ltr0n|split=> // t; left].
Qed.
